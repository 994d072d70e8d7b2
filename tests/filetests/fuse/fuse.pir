// run: fuse

// ----- a chain
module @m
graph @main(%x: f32[2,3], %b: f32[3]) -> (y: f32[2,3]) {
  %half: f32[] = core.constant() {value = f32[] dense<0.5>}
  %0: f32[2,3] = math.mul(%x, %half)
  %1: f32[2,3] = math.add(%0, %b)
  %y: f32[2,3] = math.tanh(%1)
  return %y
}
// expect
module @m

graph @main(%x: f32[2,3], %b: f32[3]) -> (y: f32[2,3]) {
  %y: f32[2,3] = math.map([%x, %b]) {expr = "tanh(add(mul($0,c(0.5)),$1))", dtype = f32}
  return %y
}

// ----- one op stays
module @m
graph @main(%x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = math.tanh(%x)
  return %y
}
// expect
module @m

graph @main(%x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = math.tanh(%x)
  return %y
}

// ----- a value used twice inside the chain
module @m
graph @main(%x: f32[2]) -> (y: f32[2]) {
  %0: f32[2] = math.exp(%x)
  %1: f32[2] = math.sqrt(%0)
  %y: f32[2] = math.mul(%0, %1)
  return %y
}
// expect
module @m

graph @main(%x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = math.map([%x]) {expr = "mul(exp($0),sqrt(exp($0)))", dtype = f32}
  return %y
}

// ----- a value used elsewhere ends the chain
module @m
graph @main(%x: f32[2]) -> (y: f32[2], z: f32[2]) {
  %0: f32[2] = math.exp(%x)
  %z: f32[2] = math.neg(%0)
  %1: f32[2] = math.sqrt(%z)
  %y: f32[2] = math.abs(%1)
  return %y, %z
}
// expect
module @m

graph @main(%x: f32[2]) -> (y: f32[2], z: f32[2]) {
  %z: f32[2] = math.map([%x]) {expr = "neg(exp($0))", dtype = f32}
  %y: f32[2] = math.map([%z]) {expr = "abs(sqrt($0))", dtype = f32}
  return %y, %z
}

// ----- small values are not computed again for every element
module @m
graph @main(%x: f32[3], %y: f32[4,3]) -> (z: f32[4,3]) {
  %0: f32[3] = math.exp(%x)
  %1: f32[4,3] = math.add(%0, %y)
  %z: f32[4,3] = math.abs(%1)
  return %z
}
// expect
module @m

graph @main(%x: f32[3], %y: f32[4,3]) -> (z: f32[4,3]) {
  %0: f32[3] = math.exp(%x)
  %z: f32[4,3] = math.map([%0, %y]) {expr = "abs(add($0,$1))", dtype = f32}
  return %z
}

// ----- another IPU ends the chain
module @m
graph @main(%x: f32[2]) -> (y: f32[2]) {
  %0: f32[2] = math.exp(%x) {ipu = 0}
  %1: f32[2] = math.neg(%0) {ipu = 0}
  %2: f32[2] = math.abs(%1) {ipu = 1}
  %y: f32[2] = math.sqrt(%2) {ipu = 1}
  return %y
}
// expect
module @m

graph @main(%x: f32[2]) -> (y: f32[2]) {
  %0: f32[2] = math.map([%x]) {expr = "neg(exp($0))", dtype = f32, ipu = 0}
  %y: f32[2] = math.map([%0]) {expr = "sqrt(abs($0))", dtype = f32, ipu = 1}
  return %y
}

// ----- types change inside
module @m
graph @main(%x: f32[2]) -> (y: i32[2]) {
  %c: f32[] = core.constant() {value = f32[] dense<0.25>}
  %0: bool[2] = math.greater(%x, %c)
  %y: i32[2] = math.cast(%0) {dtype = i32}
  return %y
}
// expect
module @m

graph @main(%x: f32[2]) -> (y: i32[2]) {
  %y: i32[2] = math.map([%x]) {expr = "cast(greater($0,c(0.25)),i32)", dtype = i32}
  return %y
}

// ----- the epilogue of a product stands alone
module @m
graph @main(%x: f32[2,4], %w: f32[4,3], %r: f32[2,3]) -> (y: f32[2,3]) {
  %b: f32[3] = core.constant() {value = f32[3] dense<1.0, 2.0, 3.0>}
  %0: f32[2,3] = nn.matmul(%x, %w)
  %1: f32[2,3] = math.add(%0, %b)
  %2: f32[2,3] = nn.relu(%1)
  %3: f32[2,3] = math.exp(%r)
  %y: f32[2,3] = math.mul(%2, %3)
  return %y
}
// expect
module @m

graph @main(%x: f32[2,4], %w: f32[4,3], %r: f32[2,3]) -> (y: f32[2,3]) {
  %b: f32[3] = core.constant() {value = f32[3] dense<1.0, 2.0, 3.0>}
  %0: f32[2,3] = nn.matmul(%x, %w)
  %1: f32[2,3] = math.map([%0, %b]) {expr = "relu(add($0,$1))", dtype = f32}
  %y: f32[2,3] = math.map([%1, %r]) {expr = "mul($0,exp($1))", dtype = f32}
  return %y
}

// ----- a residual
module @m
graph @main(%x: f32[1,2,4], %w: f32[2,2,1]) -> (y: f32[1,2,4]) {
  %0: f32[1,2,4] = nn.conv(%x, %w, none) {strides = [1], pads = [0, 0], dilations = [1]}
  %1: f32[1,2,4] = math.add(%0, %x)
  %y: f32[1,2,4] = nn.relu(%1)
  return %y
}
// expect
module @m

graph @main(%x: f32[1,2,4], %w: f32[2,2,1]) -> (y: f32[1,2,4]) {
  %0: f32[1,2,4] = nn.conv(%x, %w, none) {strides = [1], pads = [0, 0], dilations = [1]}
  %y: f32[1,2,4] = math.map([%0, %x]) {expr = "relu(add($0,$1))", dtype = f32}
  return %y
}

// ----- activations are spelled out
module @m
graph @main(%x: f32[2]) -> (y: f32[2]) {
  %0: f32[2] = nn.gelu(%x)
  %1: f32[2] = nn.leaky_relu(%0) {alpha = 0.2}
  %y: f32[2] = math.neg(%1)
  return %y
}
// expect
module @m

graph @main(%x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = math.map([%x]) {expr = "neg(select(less(mul(mul($0,c(0.5)),add(c(1.0),erf(mul($0,c(0.7071067811865476))))),c(0.0)),mul(mul(mul($0,c(0.5)),add(c(1.0),erf(mul($0,c(0.7071067811865476))))),c(0.2)),mul(mul($0,c(0.5)),add(c(1.0),erf(mul($0,c(0.7071067811865476)))))))", dtype = f32}
  return %y
}

// ----- inside a region
module @m
graph @main(%c: bool[], %x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = core.if(%c) then_branch() {
    %0: f32[2] = math.exp(%x)
    %1: f32[2] = math.neg(%0)
    return %1
  } else_branch() {
    return %x
  }
  return %y
}
// expect
module @m

graph @main(%c: bool[], %x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = core.if(%c) then_branch() {
    %0: f32[2] = math.map([%x]) {expr = "neg(exp($0))", dtype = f32}
    return %0
  } else_branch() {
    return %x
  }
  return %y
}

// ----- products of one operand
module @m
graph @main(%x: f32[2,1]) -> (q: f32[16,2], k: f32[2,4,4]) {
  %wq: f32[1,16] = core.constant() {value = f32[1,16] dense<-3, -2, -1, 0, 1, 2, 3, -3, -2, -1, 0, 1, 2, 3, -3, -2>}
  %wk: f32[1,16] = core.constant() {value = f32[1,16] dense<-3, -1, 1, 3, -2, 0, 2, -3, -1, 1, 3, -2, 0, 2, -3, -1>}
  %wf: f32[1,16] = core.constant() {value = f32[1,16] dense<-3, 0, 3, -1, 2, -2, 1, -3, 0, 3, -1, 2, -2, 1, -3, 0>}
  %bq: f32[16] = core.constant() {value = f32[16] dense<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16>}
  %bk: f32[16] = core.constant() {value = f32[16] dense<16, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16>}
  %0: f32[2,16] = nn.matmul(%x, %wq)
  %1: f32[2,16] = math.add(%0, %bq)
  %2: f32[2,16] = nn.matmul(%x, %wk)
  %3: f32[2,16] = math.add(%bk, %2)
  %4: f32[2,16] = nn.matmul(%x, %wf)
  %5: f32[2,16] = nn.relu(%4)
  %6: f32[2,16] = nn.softmax(%5)
  %7: f32[2,16] = math.add(%6, %6)
  %q: f32[16,2] = tensor.transpose(%1) {perm = [1, 0]}
  %k: f32[2,4,4] = tensor.reshape(%3) {shape = [2, 4, 4]}
  return %q, %k
}
// expect
module @m

graph @main(%x: f32[2,1]) -> (q: f32[16,2], k: f32[2,4,4]) {
  %0: f32[1,32] = core.constant() {value = f32[1,32] dense<sha256:2be836f5aa56e8c76e0d1c8620655afa>}
  %1: f32[2,32] = nn.matmul(%x, %0)
  %2: f32[32] = core.constant() {value = f32[32] dense<sha256:2ef4709d91aef9e42c29b823487ce0a3>}
  %3: f32[2,32] = math.add(%1, %2)
  %4: f32[2,16] = tensor.slice(%3) {starts = [0, 0], sizes = [2, 16], steps = [1, 1]}
  %5: f32[2,16] = tensor.slice(%3) {starts = [0, 16], sizes = [2, 16], steps = [1, 1]}
  %q: f32[16,2] = tensor.transpose(%4) {perm = [1, 0]}
  %k: f32[2,4,4] = tensor.reshape(%5) {shape = [2, 4, 4]}
  return %q, %k
}
