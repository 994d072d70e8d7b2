// run: simplify

// ----- constants
module @m
graph @main(%x: f32[2]) -> (y: f32[2], z: f32[2]) {
  %a: f32[2] = core.constant() {value = f32[2] dense<1.0, 2.0>}
  %b: f32[2] = core.constant() {value = f32[2] dense<10.0, 20.0>}
  %0: f32[2] = math.add(%a, %b)
  %1: f32[2] = math.sqrt(%0)
  %y: f32[2] = math.mul(%x, %1)
  %z: f32[2] = math.exp(%a)
  return %y, %z
}
// expect
module @m

graph @main(%x: f32[2]) -> (y: f32[2], z: f32[2]) {
  %0: f32[2] = core.constant() {value = f32[2] dense<3.3166249, 4.690416>}
  %y: f32[2] = math.mul(%x, %0)
  %z: f32[2] = core.constant() {value = f32[2] dense<2.718282, 7.3890557>}
  return %y, %z
}

// ----- equal expressions
module @m
graph @main(%x: f32[2], %y: f32[2]) -> (a: f32[2], b: f32[2], c: f32[2]) {
  %0: f32[2] = math.add(%x, %y)
  %1: f32[2] = math.add(%y, %x)
  %2: f32[2] = math.sub(%x, %y)
  %3: f32[2] = math.sub(%y, %x)
  %a: f32[2] = math.mul(%0, %1)
  %b: f32[2] = math.mul(%2, %3)
  %c: f32[2] = math.add(%x, %y) {ipu = 1}
  return %a, %b, %c
}
// expect
module @m

graph @main(%x: f32[2], %y: f32[2]) -> (a: f32[2], b: f32[2], c: f32[2]) {
  %0: f32[2] = math.add(%x, %y)
  %1: f32[2] = math.sub(%x, %y)
  %2: f32[2] = math.sub(%y, %x)
  %a: f32[2] = math.mul(%0, %0)
  %b: f32[2] = math.mul(%1, %2)
  %c: f32[2] = math.add(%x, %y) {ipu = 1}
  return %a, %b, %c
}

// ----- dead ops
module @m
graph @main(%x: f32[2], %y: f32[2]) -> (a: f32[2]) {
  %0: f32[2] = math.add(%x, %y)
  %1: f32[2] = math.exp(%0)
  %a: f32[2] = math.neg(%x)
  return %a
}
// expect
module @m

graph @main(%x: f32[2], %y: f32[2]) -> (a: f32[2]) {
  %a: f32[2] = math.neg(%x)
  return %a
}

// ----- random numbers are neither folded nor merged
module @m
graph @main() -> (a: f32[2], b: f32[2]) {
  %a: f32[2] = core.random_uniform() {shape = [2]}
  %b: f32[2] = core.random_uniform() {shape = [2]}
  return %a, %b
}
// expect
module @m

graph @main() -> (a: f32[2], b: f32[2]) {
  %a: f32[2] = core.random_uniform() {shape = [2]}
  %b: f32[2] = core.random_uniform() {shape = [2]}
  return %a, %b
}

// ----- a branch that is known
module @m
graph @main(%x: f32[2]) -> (y: f32[2]) {
  %c: bool[] = core.constant() {value = bool[] dense<false>}
  %0: f32[2] = core.if(%c) then_branch() {
    %1: f32[2] = math.exp(%x)
    return %1
  } else_branch() {
    %2: f32[2] = math.neg(%x)
    %3: f32[2] = math.abs(%2)
    return %3
  }
  %y: f32[2] = math.sqrt(%0)
  return %y
}
// expect
module @m

graph @main(%x: f32[2]) -> (y: f32[2]) {
  %0: f32[2] = math.neg(%x)
  %1: f32[2] = math.abs(%0)
  %y: f32[2] = math.sqrt(%1)
  return %y
}

// ----- loops that run once or never
module @m
graph @main(%x: f32[2]) -> (y: f32[2], z: f32[2]) {
  %y: f32[2] = core.loop([%x], none, none) {trip = 1} body(%i: i32[], %v: f32[2]) {
    %0: f32[] = math.cast(%i) {dtype = f32}
    %1: f32[2] = math.sub(%v, %0)
    return %1
  }
  %z: f32[2] = core.loop([%x], none, none) {trip = 0} body(%i: i32[], %v: f32[2]) {
    %0: f32[2] = math.exp(%v)
    return %0
  }
  return %y, %z
}
// expect
module @m

graph @main(%x: f32[2]) -> (y: f32[2], z: f32[2]) {
  return %x, %x
}

// ----- merging inside a region with what stands outside
module @m
graph @main(%c: bool[], %x: f32[2]) -> (y: f32[2], z: f32[2]) {
  %z: f32[2] = math.exp(%x)
  %y: f32[2] = core.if(%c) then_branch() {
    %0: f32[2] = math.exp(%x)
    %1: f32[2] = math.neg(%0)
    return %1
  } else_branch() {
    %2: f32[2] = math.neg(%x)
    return %2
  }
  return %y, %z
}
// expect
module @m

graph @main(%c: bool[], %x: f32[2]) -> (y: f32[2], z: f32[2]) {
  %z: f32[2] = math.exp(%x)
  %y: f32[2] = core.if(%c) then_branch() {
    %0: f32[2] = math.neg(%z)
    return %0
  } else_branch() {
    %1: f32[2] = math.neg(%x)
    return %1
  }
  return %y, %z
}

// ----- scales and biases go into the weights
module @m
graph @main(%x: f32[1,2,4]) -> (y: f32[1,2,4]) {
  %w: f32[2,2,1] = core.constant() {value = f32[2,2,1] dense<1.0, 2.0, 3.0, 4.0>}
  %s: f32[2,1] = core.constant() {value = f32[2,1] dense<0.5, 2.0>}
  %b: f32[1,2,1] = core.constant() {value = f32[1,2,1] dense<1.0, -1.0>}
  %0: f32[1,2,4] = nn.conv(%x, %w, none) {strides = [1], pads = [0, 0], dilations = [1]}
  %1: f32[1,2,4] = math.mul(%0, %s)
  %y: f32[1,2,4] = math.add(%b, %1)
  return %y
}
// expect
module @m

graph @main(%x: f32[1,2,4]) -> (y: f32[1,2,4]) {
  %0: f32[2,2,1] = core.constant() {value = f32[2,2,1] dense<0.5, 1.0, 6.0, 8.0>}
  %1: f32[2] = core.constant() {value = f32[2] dense<1.0, -1.0>}
  %y: f32[1,2,4] = nn.conv(%x, %0, %1) {strides = [1], pads = [0, 0], dilations = [1]}
  return %y
}

// ----- a division by zero is left for the run
module @m
graph @main() -> (y: i32[]) {
  %a: i32[] = core.constant() {value = i32[] dense<1>}
  %b: i32[] = core.constant() {value = i32[] dense<0>}
  %y: i32[] = math.div(%a, %b)
  return %y
}
// expect
module @m

graph @main() -> (y: i32[]) {
  %a: i32[] = core.constant() {value = i32[] dense<1>}
  %b: i32[] = core.constant() {value = i32[] dense<0>}
  %y: i32[] = math.div(%a, %b)
  return %y
}

// ----- the scale of attention goes into the weights
module @m
graph @main(%x: f32[3,4], %k: f32[2,2,3]) -> (y: f32[2,3,3]) {
  %w: f32[4,4] = core.constant() {value = f32[4,4] dense<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16>}
  %b: f32[4] = core.constant() {value = f32[4] dense<1, 2, 3, 4>}
  %c: f32[] = core.constant() {value = f32[] dense<0.5>}
  %0: f32[3,4] = nn.matmul(%x, %w)
  %1: f32[3,4] = math.add(%0, %b)
  %2: f32[3,2,2] = tensor.reshape(%1) {shape = [3, 2, 2]}
  %3: f32[2,3,2] = tensor.transpose(%2) {perm = [1, 0, 2]}
  %4: f32[2,3,3] = nn.matmul(%3, %k)
  %y: f32[2,3,3] = math.mul(%4, %c)
  return %y
}
// expect
module @m

graph @main(%x: f32[3,4], %k: f32[2,2,3]) -> (y: f32[2,3,3]) {
  %0: f32[4,4] = core.constant() {value = f32[4,4] dense<0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5, 8.0>}
  %1: f32[3,4] = nn.matmul(%x, %0)
  %2: f32[4] = core.constant() {value = f32[4] dense<0.5, 1.0, 1.5, 2.0>}
  %3: f32[3,4] = math.add(%1, %2)
  %4: f32[3,2,2] = tensor.reshape(%3) {shape = [3, 2, 2]}
  %5: f32[2,3,2] = tensor.transpose(%4) {perm = [1, 0, 2]}
  %y: f32[2,3,3] = nn.matmul(%5, %k)
  return %y
}

// ----- but not into weights that others use
module @m
graph @main(%x: f32[3,4], %k: f32[4,3]) -> (y: f32[3,3], z: f32[3,4]) {
  %w: f32[4,4] = core.constant() {value = f32[4,4] dense<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16>}
  %c: f32[] = core.constant() {value = f32[] dense<0.5>}
  %z: f32[3,4] = nn.matmul(%x, %w)
  %0: f32[3,3] = nn.matmul(%z, %k)
  %y: f32[3,3] = math.mul(%0, %c)
  return %y, %z
}
// expect
module @m

graph @main(%x: f32[3,4], %k: f32[4,3]) -> (y: f32[3,3], z: f32[3,4]) {
  %w: f32[4,4] = core.constant() {value = f32[4,4] dense<1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0>}
  %c: f32[] = core.constant() {value = f32[] dense<0.5>}
  %z: f32[3,4] = nn.matmul(%x, %w)
  %0: f32[3,3] = nn.matmul(%z, %k)
  %y: f32[3,3] = math.mul(%0, %c)
  return %y, %z
}

// ----- an affine map in front of a convolution
module @m
graph @main(%x: f32[1,2,4]) -> (y: f32[1,2,4], z: f32[1,2,4]) {
  %w: f32[2,2,1] = core.constant() {value = f32[2,2,1] dense<1.0, 2.0, 3.0, 4.0>}
  %v: f32[2,2,3] = core.constant() {value = f32[2,2,3] dense<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>}
  %s: f32[1] = core.constant() {value = f32[1] dense<0.5>}
  %t: f32[1] = core.constant() {value = f32[1] dense<3.0>}
  %0: f32[1,2,4] = nn.relu(%x)
  %1: f32[1,2,4] = math.mul(%s, %0)
  %2: f32[1,2,4] = math.add(%1, %t)
  %y: f32[1,2,4] = nn.conv(%2, %w, none) {strides = [1], pads = [0, 0], dilations = [1]}
  %3: f32[1,2,4] = math.exp(%x)
  %4: f32[1,2,4] = math.mul(%s, %3)
  %5: f32[1,2,4] = math.add(%4, %t)
  %z: f32[1,2,4] = nn.conv(%5, %v, none) {strides = [1], pads = [1, 1], dilations = [1]}
  return %y, %z
}
// expect
module @m

graph @main(%x: f32[1,2,4]) -> (y: f32[1,2,4], z: f32[1,2,4]) {
  %v: f32[2,2,3] = core.constant() {value = f32[2,2,3] dense<1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0>}
  %s: f32[1] = core.constant() {value = f32[1] dense<0.5>}
  %t: f32[1] = core.constant() {value = f32[1] dense<3.0>}
  %0: f32[1,2,4] = nn.relu(%x)
  %1: f32[2] = core.constant() {value = f32[2] dense<9.0, 21.0>}
  %2: f32[2,2,1] = core.constant() {value = f32[2,2,1] dense<0.5, 1.0, 1.5, 2.0>}
  %y: f32[1,2,4] = nn.conv(%0, %2, %1) {strides = [1], pads = [0, 0], dilations = [1]}
  %3: f32[1,2,4] = math.exp(%x)
  %4: f32[1,2,4] = math.mul(%s, %3)
  %5: f32[1,2,4] = math.add(%4, %t)
  %z: f32[1,2,4] = nn.conv(%5, %v, none) {strides = [1], pads = [1, 1], dilations = [1]}
  return %y, %z
}
