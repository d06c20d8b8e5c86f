"""What Inductor has wrong on a CPU: needs torch and a C++ compiler."""

import torch

if __name__ == "__main__":
    x = torch.linspace(-0.01, 0.01, 4001)[:4000]
    for fn in (torch.erf, torch.expm1, torch.atanh):
        torch._dynamo.reset()
        got, exact = torch.compile(fn)(x), fn(x.double())
        for at in (2010, 2000):
            print(f"{fn.__name__:6} of {x[at]:.10g}: inductor {got[at]:.8g}, float64 {exact[at]:.8g}")
