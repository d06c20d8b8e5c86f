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
