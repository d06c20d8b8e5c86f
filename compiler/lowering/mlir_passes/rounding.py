"""Conversions between float widths that LLVM calls by name, whatever C library there is, as functions of its dialect.

A 16-bit float is returned, and taken, in the low half of the register of a float, so a function of floats with those
bits can stand in. Without AVX-512 of bfloat16, or without F16C below x86-64-v3, no instruction converts these numbers.
"""

NAMES = {
    "__truncsfbf2": "to_bfloat", "__truncdfbf2": "double_to_bfloat", "__truncsfhf2": "to_half",
    "__truncdfhf2": "double_to_half", "__extendhfsf2": "from_half",
}  # fmt: skip
"""The function of ``SOURCE`` for each."""

# A double goes through float: where LLVM asks for one step, it has joined the two that the kernel had.
# A half is rounded by integer arithmetic on the bits of a float, whose bias is 112 larger; what is below the normal
# ones by adding 1/2, whose last place is theirs. It is widened the other way, subnormal ones by a subtraction.
SOURCE = """
module {
  llvm.func @to_bfloat(%x: f32) -> f32 {
    %sixteen = llvm.mlir.constant(16 : i32) : i32
    %one = llvm.mlir.constant(1 : i32) : i32
    %half = llvm.mlir.constant(32767 : i32) : i32
    %quiet = llvm.mlir.constant(32704 : i32) : i32
    %bits = llvm.bitcast %x : f32 to i32
    %upper = llvm.lshr %bits, %sixteen : i32
    %odd = llvm.and %upper, %one : i32
    %bias = llvm.add %odd, %half : i32
    %sum = llvm.add %bits, %bias : i32
    %rounded = llvm.lshr %sum, %sixteen : i32
    %nan = llvm.fcmp "uno" %x, %x : f32
    %code = llvm.select %nan, %quiet, %rounded : i1, i32
    %result = llvm.bitcast %code : i32 to f32
    llvm.return %result : f32
  }
  llvm.func @double_to_bfloat(%x: f64) -> f32 {
    %single = llvm.fptrunc %x : f64 to f32
    %result = llvm.call @to_bfloat(%single) : (f32) -> f32
    llvm.return %result : f32
  }
  llvm.func @to_half(%x: f32) -> f32 {
    %one = llvm.mlir.constant(1 : i32) : i32
    %dropped = llvm.mlir.constant(13 : i32) : i32
    %sixteen = llvm.mlir.constant(16 : i32) : i32
    %sign_bit = llvm.mlir.constant(0x8000 : i32) : i32
    %magnitude = llvm.mlir.constant(0x7fffffff : i32) : i32
    %bits = llvm.bitcast %x : f32 to i32
    %size = llvm.and %bits, %magnitude : i32
    %upper = llvm.lshr %bits, %sixteen : i32
    %sign = llvm.and %upper, %sign_bit : i32

    %rebias = llvm.mlir.constant(0x38000000 : i32) : i32
    %below_half = llvm.mlir.constant(0xfff : i32) : i32
    %biased = llvm.sub %size, %rebias : i32
    %last = llvm.lshr %biased, %dropped : i32
    %odd = llvm.and %last, %one : i32
    %to_even = llvm.add %odd, %below_half : i32
    %carried = llvm.add %biased, %to_even : i32
    %normal = llvm.lshr %carried, %dropped : i32

    %half = llvm.mlir.constant(0.5 : f32) : f32
    %half_bits = llvm.mlir.constant(0x3f000000 : i32) : i32
    %positive = llvm.bitcast %size : i32 to f32
    %aligned = llvm.fadd %positive, %half : f32
    %aligned_bits = llvm.bitcast %aligned : f32 to i32
    %subnormal = llvm.sub %aligned_bits, %half_bits : i32

    %infinity = llvm.mlir.constant(0x7c00 : i32) : i32
    %quiet = llvm.mlir.constant(0x7e00 : i32) : i32
    %least_normal = llvm.mlir.constant(0x38800000 : i32) : i32
    %beyond = llvm.mlir.constant(0x47800000 : i32) : i32
    %small = llvm.icmp "ult" %size, %least_normal : i32
    %large = llvm.icmp "uge" %size, %beyond : i32
    %nan = llvm.fcmp "uno" %x, %x : f32
    %number = llvm.select %small, %subnormal, %normal : i1, i32
    %ranged = llvm.select %large, %infinity, %number : i1, i32
    %code = llvm.select %nan, %quiet, %ranged : i1, i32
    %signed = llvm.or %code, %sign : i32
    %result = llvm.bitcast %signed : i32 to f32
    llvm.return %result : f32
  }
  llvm.func @double_to_half(%x: f64) -> f32 {
    %single = llvm.fptrunc %x : f64 to f32
    %result = llvm.call @to_half(%single) : (f32) -> f32
    llvm.return %result : f32
  }
  llvm.func @from_half(%x: f32) -> f32 {
    %dropped = llvm.mlir.constant(13 : i32) : i32
    %sixteen = llvm.mlir.constant(16 : i32) : i32
    %sign_bit = llvm.mlir.constant(0x8000 : i32) : i32
    %magnitude = llvm.mlir.constant(0x7fff : i32) : i32
    %bits = llvm.bitcast %x : f32 to i32
    %size = llvm.and %bits, %magnitude : i32
    %sign = llvm.and %bits, %sign_bit : i32
    %high_sign = llvm.shl %sign, %sixteen : i32
    %moved = llvm.shl %size, %dropped : i32

    %rebias = llvm.mlir.constant(0x38000000 : i32) : i32
    %normal = llvm.add %moved, %rebias : i32
    %special = llvm.add %normal, %rebias : i32

    %step = llvm.mlir.constant(0x00800000 : i32) : i32
    %least = llvm.mlir.constant(6.103515625e-05 : f32) : f32
    %raised = llvm.add %normal, %step : i32
    %raised_float = llvm.bitcast %raised : i32 to f32
    %exact = llvm.fsub %raised_float, %least : f32
    %subnormal = llvm.bitcast %exact : f32 to i32

    %least_normal = llvm.mlir.constant(0x0400 : i32) : i32
    %infinity = llvm.mlir.constant(0x7c00 : i32) : i32
    %quiet = llvm.mlir.constant(0x00400000 : i32) : i32
    %none = llvm.mlir.constant(0 : i32) : i32
    %small = llvm.icmp "ult" %size, %least_normal : i32
    %endless = llvm.icmp "uge" %size, %infinity : i32
    %nan = llvm.icmp "ugt" %size, %infinity : i32
    %number = llvm.select %small, %subnormal, %normal : i1, i32
    %ranged = llvm.select %endless, %special, %number : i1, i32
    %quieted = llvm.select %nan, %quiet, %none : i1, i32
    %code = llvm.or %ranged, %quieted : i32
    %signed = llvm.or %code, %high_sign : i32
    %result = llvm.bitcast %signed : i32 to f32
    llvm.return %result : f32
  }
}
"""
