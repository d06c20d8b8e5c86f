"""What Inductor has wrong on a GPU: needs torch with CUDA, and Triton."""

import torch
from torch.nn import functional


def compiled(function, *args):
    """What the compiled function gives, or what it raises."""
    torch._dynamo.reset()
    try:
        return torch.compile(function)(*args).tolist()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


if __name__ == "__main__":
    torch.set_default_device("cuda")
    print(compiled(lambda x: functional.pad(x, [0, 1]), torch.tensor([False])))  # not [False, False]
    print(compiled(functional.softshrink, torch.tensor([float("nan"), 1.0])))  # not [nan, 0.5]
    print(compiled(lambda x: x * 1.0, torch._neg_view(torch.tensor([2.0]))))  # not [-2.0]
    zero = torch.tensor([0.0])
    print(compiled(lambda x: functional.linear(torch.bernoulli(x, 0.0), x), zero))  # raises, and 0 is right
    numbers, index = torch.tensor([0, 1], dtype=torch.int8), torch.tensor([0, 0])
    print(compiled(lambda x: torch.put(x, index, x, True), numbers))  # raises, and [1, 1] is right
