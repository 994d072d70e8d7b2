// run: simplify

// ----- reshapes
module @m
graph @main(%x: f32[2,6]) -> (y: f32[2,6], z: f32[3,4]) {
  %0: f32[12] = tensor.reshape(%x) {shape = [12]}
  %y: f32[2,6] = tensor.reshape(%0) {shape = [2, 6]}
  %z: f32[3,4] = tensor.reshape(%0) {shape = [3, 4]}
  return %y, %z
}
// expect
module @m

graph @main(%x: f32[2,6]) -> (y: f32[2,6], z: f32[3,4]) {
  %z: f32[3,4] = tensor.reshape(%x) {shape = [3, 4]}
  return %x, %z
}

// ----- transposes
module @m
graph @main(%x: f32[2,3,4], %s: f32[1,5,1]) -> (y: f32[2,3,4], z: f32[4,2,3], r: f32[5,1,1]) {
  %0: f32[3,4,2] = tensor.transpose(%x) {perm = [1, 2, 0]}
  %y: f32[2,3,4] = tensor.transpose(%0) {perm = [2, 0, 1]}
  %z: f32[4,2,3] = tensor.transpose(%0) {perm = [1, 2, 0]}
  %r: f32[5,1,1] = tensor.transpose(%s) {perm = [1, 0, 2]}
  return %y, %z, %r
}
// expect
module @m

graph @main(%x: f32[2,3,4], %s: f32[1,5,1]) -> (y: f32[2,3,4], z: f32[4,2,3], r: f32[5,1,1]) {
  %z: f32[4,2,3] = tensor.transpose(%x) {perm = [2, 0, 1]}
  %r: f32[5,1,1] = tensor.reshape(%s) {shape = [5, 1, 1]}
  return %x, %z, %r
}

// ----- slices and concatenations
module @m
graph @main(%x: f32[8]) -> (y: f32[8], z: f32[2], w: f32[8]) {
  %0: f32[3] = tensor.slice(%x) {starts = [0], sizes = [3], steps = [1]}
  %1: f32[5] = tensor.slice(%x) {starts = [3], sizes = [5], steps = [1]}
  %y: f32[8] = tensor.concat([%0, %1])
  %2: f32[4] = tensor.slice(%x) {starts = [7], sizes = [4], steps = [-2]}
  %z: f32[2] = tensor.slice(%2) {starts = [1], sizes = [2], steps = [2]}
  %w: f32[8] = tensor.concat([%1, %0])
  return %y, %z, %w
}
// expect
module @m

graph @main(%x: f32[8]) -> (y: f32[8], z: f32[2], w: f32[8]) {
  %0: f32[3] = tensor.slice(%x) {starts = [0], sizes = [3], steps = [1]}
  %1: f32[5] = tensor.slice(%x) {starts = [3], sizes = [5], steps = [1]}
  %z: f32[2] = tensor.slice(%x) {starts = [5], sizes = [2], steps = [-4]}
  %w: f32[8] = tensor.concat([%1, %0])
  return %x, %z, %w
}

// ----- expands that broadcasting does
module @m
graph @main(%x: f32[4], %y: f32[2,4]) -> (a: f32[2,4], b: f32[2,4]) {
  %0: f32[2,4] = tensor.expand(%x) {shape = [2, 4]}
  %a: f32[2,4] = math.sub(%0, %y)
  %b: f32[2,4] = math.add(%0, %0)
  return %a, %b
}
// expect
module @m

graph @main(%x: f32[4], %y: f32[2,4]) -> (a: f32[2,4], b: f32[2,4]) {
  %0: f32[2,4] = tensor.expand(%x) {shape = [2, 4]}
  %a: f32[2,4] = math.sub(%x, %y)
  %b: f32[2,4] = math.add(%x, %0)
  return %a, %b
}

// ----- gathers of known indices
module @m
graph @main(%x: f32[5,2]) -> (a: f32[2], b: f32[3,2], c: f32[3,2]) {
  %i: i32[] = core.constant() {value = i32[] dense<3>}
  %j: i32[3] = core.constant() {value = i32[3] dense<4, 2, 0>}
  %k: i32[3] = core.constant() {value = i32[3] dense<0, 2, 3>}
  %a: f32[2] = tensor.gather(%x, %i)
  %b: f32[3,2] = tensor.gather(%x, %j)
  %c: f32[3,2] = tensor.gather(%x, %k)
  return %a, %b, %c
}
// expect
module @m

graph @main(%x: f32[5,2]) -> (a: f32[2], b: f32[3,2], c: f32[3,2]) {
  %k: i32[3] = core.constant() {value = i32[3] dense<0, 2, 3>}
  %0: f32[1,2] = tensor.slice(%x) {starts = [3, 0], sizes = [1, 2], steps = [1, 1]}
  %a: f32[2] = tensor.reshape(%0) {shape = [2]}
  %b: f32[3,2] = tensor.slice(%x) {starts = [4, 0], sizes = [3, 2], steps = [-2, 1]}
  %c: f32[3,2] = tensor.gather(%x, %k)
  return %a, %b, %c
}
