"""What Inductor has wrong on a CPU: needs torch and a C++ compiler."""

import torch

if __name__ == "__main__":
    x = torch.linspace(-0.01, 0.01, 4001)[:4000]
    for fn in (torch.erf, torch.expm1, torch.atanh):
        torch._dynamo.reset()
        got, exact = torch.compile(fn)(x), fn(x.double())
        for at in (2010, 2000):
            print(f"{fn.__name__:6} of {x[at]:.10g}: inductor {got[at]:.8g}, float64 {exact[at]:.8g}")


def transform(x):
    return torch.fft.ifft(x, n=10, dim=1)


x = torch.randn(5, 6, 7)
compiled, other = torch.compile(transform), x.permute(2, 1, 0).contiguous().permute(2, 1, 0)  # the same numbers
print([(compiled(y) - transform(y)).abs().max().item() for y in (x, other)])  # 0, and not 0: the conjugate


def copied(x, index, row):
    return torch.index_copy((x + 0).expand(2, 2), 0, index, row)


args = torch.zeros(2), torch.tensor(1), torch.tensor([[-2.5, -0.25]])
print(torch.compile(copied)(*args)[0], copied(*args)[0])  # the row that is not written to: -2.5 and -0.25, not 0


def filled(x, index):
    return torch.index_fill(torch.as_strided(x, (1,), (1,), 0), 0, index, 0.0)


memory = torch.arange(1.0, 5.0)
torch.compile(filled)(memory[2:], torch.tensor(0))
print(memory)  # begins with 0, not 1: memory before the argument was written to


def pooled(x):
    return torch.nn.functional.avg_pool3d(x, (1, 1, 5), stride=(1, 1, 3), padding=(0, 0, 2), ceil_mode=True)


x = torch.ones(1, 1, 1, 1, 5, requires_grad=True)
for function in (torch.compile(pooled), pooled):
    print(torch.autograd.grad(function(x).sum(), x)[0][..., -1].item())  # 0.4, where 1/5 + 1/3 is right


def windowed(x, y):
    x.unfold(0, 1, 3).copy_(y)
    return x


args = torch.ones(4), torch.full((2, 1), 2.0)
print(torch.compile(windowed)(args[0].clone(), args[1]), windowed(*args))  # 0 between the windows, where 1 is right


def chosen(x, mask):
    return torch.masked_select(x, mask)


def assigned(x, y):
    part = x.split([1, 1])[0]
    part[::2] = y
    return part


for function, *args in (
    (chosen, torch.zeros(2, 1, 2), torch.ones(2, 1, dtype=torch.bool)),
    (torch.combinations, torch.arange(3.0)),
    (assigned, torch.ones(2).to(torch.float8_e5m2), torch.tensor(3.5).to(torch.float8_e5m2)),
):
    try:
        torch.compile(function, fullgraph=True)(*args)
    except Exception as error:
        print(f"{type(error).__name__}: {str(error).splitlines()[0]}")  # eager gives 8 elements, three pairs, and 3.5
