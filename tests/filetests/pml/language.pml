// run: ""

// ----- functions and placement
def dense(x: f32[b, n], m: int) -> f32[b, m] {
    param w: f32[n, m] = constant(0.5)
    param c: f32[m] = zeros
    return x @ w + c
}
model mlp(x: f32[batch, 8]) -> logits: f32[batch, 2] {
    on ipu 0 { h = relu(dense(x, 4)) }
    on ipu 1 { logits = dense(h, 2) }
}
// expect
module @mlp

graph @main(%x: f32[batch,8]) -> (logits: f32[batch,2]) {
  %dense.w: f32[8,4] = core.constant() {value = f32[8,4] dense<splat 0.5>, ipu = 0}
  %dense.c: f32[4] = core.constant() {value = f32[4] dense<0.0, 0.0, 0.0, 0.0>, ipu = 0}
  %0: f32[batch,4] = nn.matmul(%x, %dense.w) {ipu = 0}
  %1: f32[batch,4] = math.add(%0, %dense.c) {ipu = 0}
  %h: f32[batch,4] = nn.relu(%1) {ipu = 0}
  %dense_1.w: f32[4,2] = core.constant() {value = f32[4,2] dense<0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5>, ipu = 1}
  %dense_1.c: f32[2] = core.constant() {value = f32[2] dense<0.0, 0.0>, ipu = 1}
  %2: f32[batch,2] = nn.matmul(%h, %dense_1.w) {ipu = 1}
  %logits: f32[batch,2] = math.add(%2, %dense_1.c) {ipu = 1}
  return %logits
}

// ----- statements, brackets and comments
model m(x: f32[2]) -> (y: f32[2], z: f32[2]) {   # two results
    a = x + 1; b = a * 2
    y = max(a,
            b)   # a newline inside brackets is no end
    z = -y - -1.5
}
// expect
module @m

graph @main(%x: f32[2]) -> (y: f32[2], z: f32[2]) {
  %0: f32[] = core.constant() {value = f32[] dense<1.0>}
  %a: f32[2] = math.add(%x, %0)
  %1: f32[] = core.constant() {value = f32[] dense<2.0>}
  %b: f32[2] = math.mul(%a, %1)
  %y: f32[2] = math.max(%a, %b)
  %2: f32[2] = math.neg(%y)
  %3: f32[] = core.constant() {value = f32[] dense<-1.5>}
  %z: f32[2] = math.sub(%2, %3)
  return %y, %z
}

// ----- repeat
model m(x: f32[2, 2]) -> y: f32[2, 2] {
    repeat 2 as i {
        param w: f32[2, 2] = [[1, 2], [3, 4]]
        x = x @ w + i
    }
    y = x
}
// expect
module @m

graph @main(%x: f32[2,2]) -> (y: f32[2,2]) {
  %w: f32[2,2] = core.constant() {value = f32[2,2] dense<1.0, 2.0, 3.0, 4.0>}
  %0: f32[2,2] = nn.matmul(%x, %w)
  %1: f32[] = core.constant() {value = f32[] dense<0.0>}
  %x_1: f32[2,2] = math.add(%0, %1)
  %w_1: f32[2,2] = core.constant() {value = f32[2,2] dense<1.0, 2.0, 3.0, 4.0>}
  %2: f32[2,2] = nn.matmul(%x_1, %w_1)
  %3: f32[] = core.constant() {value = f32[] dense<1.0>}
  %x_2: f32[2,2] = math.add(%2, %3)
  return %x_2
}

// ----- several results, lists and strings
def halves(x: f32[..., n]) {
    a, b = split(x, 2)
    return a, b
}
model m(x: f32[3, 4]) -> (y: f32[3, 4], z: f32[3, 2]) {
    parts = [halves(x)[0], halves(x)[1]]
    y = concat([parts[1], parts[0]], axis=1)
    z = gelu(parts[0], approximate="tanh")
}
// expect
module @m

graph @main(%x: f32[3,4]) -> (y: f32[3,4], z: f32[3,2]) {
  %halves.a: f32[3,2] = tensor.slice(%x) {starts = [0, 0], sizes = [3, 2], steps = [1, 1]}
  %halves.b: f32[3,2] = tensor.slice(%x) {starts = [0, 2], sizes = [3, 2], steps = [1, 1]}
  %halves_1.a: f32[3,2] = tensor.slice(%x) {starts = [0, 0], sizes = [3, 2], steps = [1, 1]}
  %halves_1.b: f32[3,2] = tensor.slice(%x) {starts = [0, 2], sizes = [3, 2], steps = [1, 1]}
  %y: f32[3,4] = tensor.concat([%halves_1.b, %halves.a]) {axis = 1}
  %z: f32[3,2] = nn.gelu(%halves.a) {approximate = "tanh"}
  return %y, %z
}

// ----- numbers known while building
def scaled(x: t[..., n], by: float = 0.5) -> t[..., n] {
    k = 2 * 3 - 1
    return x * (by + k) / sqrt(n)
}
model m(x: f16[4, 9]) -> y: f16[4, 9] {
    y = scaled(x) + scaled(x, by=1)
}
// expect
module @m

graph @main(%x: f16[4,9]) -> (y: f16[4,9]) {
  %0: f16[] = core.constant() {value = f16[] dense<5.5>}
  %1: f16[4,9] = math.mul(%x, %0)
  %2: f16[] = core.constant() {value = f16[] dense<3.0>}
  %3: f16[4,9] = math.div(%1, %2)
  %4: f16[] = core.constant() {value = f16[] dense<6.0>}
  %5: f16[4,9] = math.mul(%x, %4)
  %6: f16[] = core.constant() {value = f16[] dense<3.0>}
  %7: f16[4,9] = math.div(%5, %6)
  %y: f16[4,9] = math.add(%3, %7)
  return %y
}

// ----- indices
model m(x: f32[4, 6, 2]) -> (a: f32[6, 2], b: f32[4, 2, 2], c: f32[4, 6]) {
    a = x[-1]
    b = x[:, 1:3]
    c = x[:, :, 0]
}
// expect
module @m

graph @main(%x: f32[4,6,2]) -> (a: f32[6,2], b: f32[4,2,2], c: f32[4,6]) {
  %0: f32[1,6,2] = tensor.slice(%x) {starts = [3, 0, 0], sizes = [1, 6, 2], steps = [1, 1, 1]}
  %a: f32[6,2] = tensor.reshape(%0) {shape = [6, 2]}
  %b: f32[4,2,2] = tensor.slice(%x) {starts = [0, 1, 0], sizes = [4, 2, 2], steps = [1, 1, 1]}
  %1: f32[4,6,1] = tensor.slice(%x) {starts = [0, 0, 0], sizes = [4, 6, 1], steps = [1, 1, 1]}
  %c: f32[4,6] = tensor.reshape(%1) {shape = [4, 6]}
  return %a, %b, %c
}

// ----- comparisons
model m(x: f32[2], y: f32[2]) -> (a: bool[2], b: bool[2], c: f32[2]) {
    a = x <= y
    b = x != 3
    c = select(x > y, x, 0.0)
}
// expect
module @m

graph @main(%x: f32[2], %y: f32[2]) -> (a: bool[2], b: bool[2], c: f32[2]) {
  %a: bool[2] = math.less_equal(%x, %y)
  %0: f32[] = core.constant() {value = f32[] dense<3.0>}
  %1: bool[2] = math.equal(%x, %0)
  %b: bool[2] = math.not(%1)
  %2: bool[2] = math.greater(%x, %y)
  %3: f32[] = core.constant() {value = f32[] dense<0.0>}
  %c: f32[2] = math.select(%2, %x, %3)
  return %a, %b, %c
}

// ----- convolutions
model m(x: f32[1, 2, 6, 6]) -> y: f32[1, 3] {
    param w: f32[3, 2, 3, 3] = constant(0.1)
    h = max_pool(relu(conv(x, w, pad="same")), 2)
    y = global_avg_pool(h)
}
// expect
module @m

graph @main(%x: f32[1,2,6,6]) -> (y: f32[1,3]) {
  %w: f32[3,2,3,3] = core.constant() {value = f32[3,2,3,3] dense<splat 0.1>}
  %0: f32[1,3,6,6] = nn.conv(%x, %w, none) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]}
  %1: f32[1,3,6,6] = nn.relu(%0)
  %h: f32[1,3,3,3] = nn.max_pool(%1) {kernel = [2, 2], strides = [2, 2], pads = [0, 0, 0, 0], dilations = [1, 1]}
  %2: f32[1,3] = tensor.reduce(%h) {kind = "sum", axes = [2, 3]}
  %3: f32[] = core.constant() {value = f32[] dense<9.0>}
  %y: f32[1,3] = math.div(%2, %3)
  return %y
}

// ----- reshape with a free dim
model m(x: f32[batch, 2, 3]) -> (y: f32[batch, 6], z: f32[batch, 3, 2]) {
    y = flatten(x)
    z = reshape(y, [-1, 3, 2])
}
// expect
module @m

graph @main(%x: f32[batch,2,3]) -> (y: f32[batch,6], z: f32[batch,3,2]) {
  %y: f32[batch,6] = tensor.reshape(%x) {shape = ["batch", 6]}
  %z: f32[batch,3,2] = tensor.reshape(%y) {shape = ["batch", 3, 2]}
  return %y, %z
}
