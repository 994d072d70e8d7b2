// run: simplify

// ----- neutral elements
module @m
graph @main(%x: f32[2], %i: i32[2]) -> (a: f32[2], b: f32[2], c: i32[2], d: f32[2]) {
  %one: f32[] = core.constant() {value = f32[] dense<1.0>}
  %zero: f32[] = core.constant() {value = f32[] dense<0.0>}
  %minus: f32[] = core.constant() {value = f32[] dense<-0.0>}
  %none: i32[] = core.constant() {value = i32[] dense<0>}
  %0: f32[2] = math.mul(%one, %x)
  %1: f32[2] = math.div(%0, %one)
  %a: f32[2] = math.add(%1, %minus)
  %b: f32[2] = math.add(%x, %zero)
  %c: i32[2] = math.add(%none, %i)
  %d: f32[2] = math.sub(%x, %zero)
  return %a, %b, %c, %d
}
// expect
module @m

graph @main(%x: f32[2], %i: i32[2]) -> (a: f32[2], b: f32[2], c: i32[2], d: f32[2]) {
  %zero: f32[] = core.constant() {value = f32[] dense<0.0>}
  %b: f32[2] = math.add(%x, %zero)
  return %x, %b, %i, %x
}

// ----- a neutral element that broadcasts stays
module @m
graph @main(%x: f32[2]) -> (a: f32[3,2]) {
  %one: f32[3,1] = core.constant() {value = f32[3,1] dense<1.0, 1.0, 1.0>}
  %a: f32[3,2] = math.mul(%x, %one)
  return %a
}
// expect
module @m

graph @main(%x: f32[2]) -> (a: f32[3,2]) {
  %one: f32[3,1] = core.constant() {value = f32[3,1] dense<1.0, 1.0, 1.0>}
  %a: f32[3,2] = math.mul(%x, %one)
  return %a
}

// ----- powers and quotients
module @m
graph @main(%x: f32[2]) -> (a: f32[2], b: f32[2], c: f32[2], d: f32[2]) {
  %two: f32[] = core.constant() {value = f32[] dense<2.0>}
  %three: f32[] = core.constant() {value = f32[] dense<3.0>}
  %eighth: f32[] = core.constant() {value = f32[] dense<0.125>}
  %a: f32[2] = math.pow(%x, %two)
  %b: f32[2] = math.div(%x, %two)
  %c: f32[2] = math.div(%x, %three)
  %d: f32[2] = math.div(%x, %eighth)
  return %a, %b, %c, %d
}
// expect
module @m

graph @main(%x: f32[2]) -> (a: f32[2], b: f32[2], c: f32[2], d: f32[2]) {
  %three: f32[] = core.constant() {value = f32[] dense<3.0>}
  %a: f32[2] = math.mul(%x, %x)
  %0: f32[] = core.constant() {value = f32[] dense<0.5>}
  %b: f32[2] = math.mul(%x, %0)
  %c: f32[2] = math.div(%x, %three)
  %1: f32[] = core.constant() {value = f32[] dense<8.0>}
  %d: f32[2] = math.mul(%x, %1)
  return %a, %b, %c, %d
}

// ----- casts
module @m
graph @main(%x: f16[2], %y: f32[2]) -> (a: f16[2], b: f16[2], c: i64[2]) {
  %0: f32[2] = math.cast(%x) {dtype = f32}
  %a: f16[2] = math.cast(%0) {dtype = f16}
  %1: f16[2] = math.cast(%y) {dtype = f16}
  %2: f32[2] = math.cast(%1) {dtype = f32}
  %b: f16[2] = math.cast(%2) {dtype = f16}
  %3: i32[2] = math.cast(%b) {dtype = i32}
  %c: i64[2] = math.cast(%3) {dtype = i64}
  return %a, %b, %c
}
// expect
module @m

graph @main(%x: f16[2], %y: f32[2]) -> (a: f16[2], b: f16[2], c: i64[2]) {
  %b: f16[2] = math.cast(%y) {dtype = f16}
  %0: i32[2] = math.cast(%b) {dtype = i32}
  %c: i64[2] = math.cast(%0) {dtype = i64}
  return %x, %b, %c
}

// ----- twice
module @m
graph @main(%x: f32[2], %p: bool[2]) -> (a: f32[2], b: bool[2], c: f32[2], d: f32[2]) {
  %0: f32[2] = math.neg(%x)
  %a: f32[2] = math.neg(%0)
  %1: bool[2] = math.not(%p)
  %b: bool[2] = math.not(%1)
  %2: f32[2] = nn.relu(%x)
  %c: f32[2] = nn.relu(%2)
  %d: f32[2] = math.max(%x, %x)
  return %a, %b, %c, %d
}
// expect
module @m

graph @main(%x: f32[2], %p: bool[2]) -> (a: f32[2], b: bool[2], c: f32[2], d: f32[2]) {
  %c: f32[2] = nn.relu(%x)
  return %x, %p, %c, %x
}

// ----- select and logic
module @m
graph @main(%x: f32[2], %y: f32[2], %p: bool[2]) -> (a: f32[2], b: bool[2], c: bool[2], d: f32[2]) {
  %t: bool[2] = core.constant() {value = bool[2] dense<true, true>}
  %a: f32[2] = math.select(%t, %x, %y)
  %b: bool[2] = math.and(%p, %t)
  %c: bool[2] = math.or(%t, %p)
  %d: f32[2] = math.select(%p, %y, %y)
  return %a, %b, %c, %d
}
// expect
module @m

graph @main(%x: f32[2], %y: f32[2], %p: bool[2]) -> (a: f32[2], b: bool[2], c: bool[2], d: f32[2]) {
  %t: bool[2] = core.constant() {value = bool[2] dense<true, true>}
  return %x, %p, %t, %y
}

// ----- layer normalisation spelled out
module @m
graph @main(%x: f32[2,3,5]) -> (y: f32[2,3,5]) {
  %n: f32[] = core.constant() {value = f32[] dense<5.0>}
  %eps: f32[] = core.constant() {value = f32[] dense<1e-05>}
  %scale: f32[5] = core.constant() {value = f32[5] dense<1.0, 2.0, 3.0, 4.0, 5.0>}
  %bias: f32[1,1,5] = core.constant() {value = f32[1,1,5] dense<1.0, -2.0, 3.0, -4.0, 5.0>}
  %two: f32[] = core.constant() {value = f32[] dense<2.0>}
  %0: f32[2,3,1] = tensor.reduce(%x) {kind = "sum", axes = [2], keep = true}
  %1: f32[2,3,1] = math.div(%0, %n)
  %2: f32[2,3,5] = math.sub(%x, %1)
  %3: f32[2,3,5] = math.pow(%2, %two)
  %4: f32[2,3,1] = tensor.reduce(%3) {kind = "sum", axes = [2], keep = true}
  %5: f32[2,3,1] = math.div(%4, %n)
  %6: f32[2,3,1] = math.add(%5, %eps)
  %7: f32[2,3,1] = math.sqrt(%6)
  %8: f32[2,3,5] = math.div(%2, %7)
  %9: f32[2,3,5] = math.mul(%8, %scale)
  %y: f32[2,3,5] = math.add(%9, %bias)
  return %y
}
// expect
module @m

graph @main(%x: f32[2,3,5]) -> (y: f32[2,3,5]) {
  %scale: f32[5] = core.constant() {value = f32[5] dense<1.0, 2.0, 3.0, 4.0, 5.0>}
  %0: f32[5] = core.constant() {value = f32[5] dense<1.0, -2.0, 3.0, -4.0, 5.0>}
  %y: f32[2,3,5] = nn.layer_norm(%x, %scale, %0) {axis = 2, eps = 9.999999747378752e-06}
  return %y
}

// ----- layer normalisation over a power of two, with rsqrt
module @m
graph @main(%x: f32[3,2,4], %scale: f32[2,4]) -> (y: f32[3,2,4]) {
  %n: f32[] = core.constant() {value = f32[] dense<8.0>}
  %eps: f32[] = core.constant() {value = f32[] dense<0.001>}
  %0: f32[3,1,1] = tensor.reduce(%x) {kind = "sum", axes = [1, 2], keep = true}
  %1: f32[3,1,1] = math.div(%0, %n)
  %2: f32[3,2,4] = math.sub(%x, %1)
  %3: f32[3,2,4] = math.mul(%2, %2)
  %4: f32[3,1,1] = tensor.reduce(%3) {kind = "sum", axes = [1, 2], keep = true}
  %5: f32[3,1,1] = math.div(%4, %n)
  %6: f32[3,1,1] = math.add(%5, %eps)
  %7: f32[3,1,1] = math.rsqrt(%6)
  %8: f32[3,2,4] = math.mul(%2, %7)
  %y: f32[3,2,4] = math.mul(%8, %scale)
  return %y
}
// expect
module @m

graph @main(%x: f32[3,2,4], %scale: f32[2,4]) -> (y: f32[3,2,4]) {
  %y: f32[3,2,4] = nn.layer_norm(%x, %scale, none) {axis = 1, eps = 0.0010000000474974513}
  return %y
}
