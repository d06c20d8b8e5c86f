"""The compiler: capture, transforms, lowerings and runtimes."""
