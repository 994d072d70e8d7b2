// run: ""

// ----- names and numbers
module @"two words" {opset = 18, list = ["a", 1, 2.5, none, f16, f32[2,n], [true, false]]}
graph @main(%"x:0": f32[2], %"12": f32[2]) -> ("y/1": f32[2], z: f32[2]) {
  %7: f32[2] = math.add(%"x:0", %"12") {ipu = 3}
  %keep.me: f32[2] = math.mul(%7, %7)
  return %keep.me, %7
}
// expect
module @"two words" {list = ["a", 1, 2.5, none, f16, f32[2,n], [true, false]], opset = 18}

graph @main(%"x:0": f32[2], %"12": f32[2]) -> ("y/1": f32[2], z: f32[2]) {
  %0: f32[2] = math.add(%"x:0", %"12") {ipu = 3}
  %keep.me: f32[2] = math.mul(%0, %0)
  return %keep.me, %0
}

// ----- constants
module @m
graph @main() -> (a: f32[6], b: bool[2], c: i8[0], d: f64[], e: f16[40], f: bf16[2]) {
  %a: f32[6] = core.constant() {value = f32[6] dense<1.0, -0.0, inf, -inf, nan, nan:0x7fc00001>}
  %b: bool[2] = core.constant() {value = bool[2] dense<true, false>}
  %c: i8[0] = core.constant() {value = i8[0] dense<>}
  %d: f64[] = core.constant() {value = f64[] dense<0.1>}
  %e: f16[40] = core.constant() {value = f16[40] dense<splat 1e-05>}
  %f: bf16[2] = core.constant() {value = bf16[2] dense<1, 0.333984>}
  return %a, %b, %c, %d, %e, %f
}
// expect
module @m

graph @main() -> (a: f32[6], b: bool[2], c: i8[0], d: f64[], e: f16[40], f: bf16[2]) {
  %a: f32[6] = core.constant() {value = f32[6] dense<1.0, -0.0, inf, -inf, nan, nan:0x7fc00001>}
  %b: bool[2] = core.constant() {value = bool[2] dense<true, false>}
  %c: i8[0] = core.constant() {value = i8[0] dense<>}
  %d: f64[] = core.constant() {value = f64[] dense<0.1>}
  %e: f16[40] = core.constant() {value = f16[40] dense<splat 1e-05>}
  %f: bf16[2] = core.constant() {value = bf16[2] dense<1, 0.333984>}
  return %a, %b, %c, %d, %e, %f
}

// ----- regions and optional operands
module @m
graph @main(%c: bool[], %x: f32[1,2,4]) -> (y: f32[1,2,4]) {
  %w: f32[2,2,1] = core.constant() {value = f32[2,2,1] dense<1, 2, 3, 4>}
  %y: f32[1,2,4] = core.if(%c) then_branch() {
    %v: f32[1,2,4] = nn.conv(%x, %w, none) {strides = [1], pads = [0, 0], dilations = [1]}
    return %v
  } else_branch() {
    return %x
  } loc("a file.onnx" node "If_3" #17 output "y")
  return %y
}
// expect
module @m

graph @main(%c: bool[], %x: f32[1,2,4]) -> (y: f32[1,2,4]) {
  %w: f32[2,2,1] = core.constant() {value = f32[2,2,1] dense<1.0, 2.0, 3.0, 4.0>}
  %y: f32[1,2,4] = core.if(%c) then_branch() {
    %v: f32[1,2,4] = nn.conv(%x, %w, none) {strides = [1], pads = [0, 0], dilations = [1]}
    return %v
  } else_branch() {
    return %x
  }
  return %y
}

// ----- a loop
module @m
graph @main(%x: f32[4], %n: i32[]) -> (y: f32[4]) {
  %y: f32[4] = core.loop([%x], %n, none) body(%i: i32[], %v: f32[4]) {
    %0: f32[4] = math.exp(%v)
    return %0
  }
  return %y
}
// expect
module @m

graph @main(%x: f32[4], %n: i32[]) -> (y: f32[4]) {
  %y: f32[4] = core.loop([%x], %n, none) body(%i: i32[], %v: f32[4]) {
    %0: f32[4] = math.exp(%v)
    return %0
  }
  return %y
}
