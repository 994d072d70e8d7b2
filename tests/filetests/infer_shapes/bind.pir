// run: infer-shapes
// dims: batch=4 n=3

// ----- dims of inputs and attributes
module @m
graph @main(%x: f32[batch,n]) -> (y: f32[n,batch]) {
  %0: f32[n,batch] = tensor.transpose(%x) {perm = [1, 0]}
  %y: f32[n,batch] = tensor.reshape(%0) {shape = ["n", "batch"]}
  return %y
}
// expect
module @m

graph @main(%x: f32[4,3]) -> (y: f32[3,4]) {
  %0: f32[3,4] = tensor.transpose(%x) {perm = [1, 0]}
  %y: f32[3,4] = tensor.reshape(%0) {shape = [3, 4]}
  return %y
}

// ----- inside regions
module @m
graph @main(%c: bool[], %x: f32[batch]) -> (y: f32[batch]) {
  %y: f32[batch] = core.if(%c) then_branch() {
    %0: f32[batch] = math.exp(%x)
    return %0
  } else_branch() {
    return %x
  }
  return %y
}
// expect
module @m

graph @main(%c: bool[], %x: f32[4]) -> (y: f32[4]) {
  %y: f32[4] = core.if(%c) then_branch() {
    %0: f32[4] = math.exp(%x)
    return %0
  } else_branch() {
    return %x
  }
  return %y
}

// ----- unbound
module @m
graph @main(%x: f32[batch,rows,cols], %m: bool[rows]) -> (x: f32[batch,rows,cols]) {
  return %x
}
// expect-error
error[unbound-dims]: dims without a size: rows (input x, m); cols (input x)
   = help: give them: --dim rows=N --dim cols=N, or --shape INPUT=1x2x3, or run with inputs

// ----- a size that does not fit
module @m
graph @main(%x: f32[batch,5], %y: f32[n,5]) -> (z: f32[n,5]) {
  %z: f32[n,5] = math.add(%x, %y)
  return %z
}
// expect-error
error[shape-error]: math.add: shapes [4,5] and [3,5] do not broadcast: 4 against 3
