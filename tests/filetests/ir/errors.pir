// run: ""

// ----- undefined value
module @m
graph @main(%x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = math.add(%x, %z)
  return %y
}
// expect-error
error[unknown-name]: %z is not defined above
  --> case.pir:3:29
   |
 3 |   %y: f32[2] = math.add(%x, %z)
   |                             ^

// ----- wrong type
module @m
graph @main(%x: f32[2]) -> (y: f32[3]) {
  %y: f32[3] = math.exp(%x)
  return %y
}
// expect-error
error[type-mismatch]: math.exp gives f32[2], the text says f32[3]
  --> case.pir:3:3
   |
 3 |   %y: f32[3] = math.exp(%x)
   |   ^

// ----- shapes that do not fit
module @m
graph @main(%x: f32[2,3]) -> (y: f32[2,3]) {
  %y: f32[2,3] = nn.matmul(%x, %x)
  return %y
}
// expect-error
error[shape-error]: nn.matmul: inner sizes differ: f32[2,3] and f32[2,3]
  --> case.pir:3:18
   |
 3 |   %y: f32[2,3] = nn.matmul(%x, %x)
   |                  ^
   = help: transpose an operand

// ----- unknown op
module @m
graph @main(%x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = math.frobnicate(%x)
  return %y
}
// expect-error
error[unknown-name]: there is no op math.frobnicate
  --> case.pir:3:16
   |
 3 |   %y: f32[2] = math.frobnicate(%x)
   |                ^
   = help: see `poplar-py ops`

// ----- unknown attribute
module @m
graph @main(%x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = nn.softmax(%x) {axes = 0}
  return %y
}
// expect-error
error[unknown-name]: nn.softmax has no attribute axes
  --> case.pir:3:32
   |
 3 |   %y: f32[2] = nn.softmax(%x) {axes = 0}
   |                                ^

// ----- missing attribute
module @m
graph @main(%x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = tensor.reshape(%x)
  return %y
}
// expect-error
error[parse-error]: tensor.reshape needs the attribute shape
  --> case.pir:3:16
   |
 3 |   %y: f32[2] = tensor.reshape(%x)
   |                ^

// ----- missing operand
module @m
graph @main(%x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = math.add(%x)
  return %y
}
// expect-error
error[parse-error]: math.add needs the operand b
  --> case.pir:3:16
   |
 3 |   %y: f32[2] = math.add(%x)
   |                ^

// ----- a list where one value belongs
module @m
graph @main(%x: f32[2]) -> (y: f32[2]) {
  %y: f32[2] = math.exp([%x])
  return %y
}
// expect-error
error[parse-error]: operand x of math.exp is one value
  --> case.pir:3:16
   |
 3 |   %y: f32[2] = math.exp([%x])
   |                ^

// ----- defined twice
module @m
graph @main(%x: f32[2]) -> (x: f32[2]) {
  %x: f32[2] = math.exp(%x)
  return %x
}
// expect-error
error[duplicate-name]: %x is defined twice
  --> case.pir:3:3
   |
 3 |   %x: f32[2] = math.exp(%x)
   |   ^

// ----- syntax
module @m
graph @main(%x: f32[2]) -> (x: f32[2]) {
  %y: f32[2] = math.exp(%x
  return %y
}
// expect-error
error[parse-error]: unexpected 'return'
  --> case.pir:4:3
   |
 4 |   return %y
   |   ^
   = help: expected ')' or ','

// ----- too short
module @m
graph @main(%x: f32[2])
// expect-error
error[parse-error]: the text ends too soon
  --> case.pir:3:1
   = help: expected '->'

// ----- missing array
module @m
graph @main() -> (w: f32[100]) {
  %w: f32[100] = core.constant() {value = f32[100] dense<sha256:00000000000000000000000000000000>}
  return %w
}
// expect-error
error[file-error]: the array sha256:00000000000000000000000000000000 of type f32[100] is not at hand
  --> case.pir:3:52
   |
 3 |   %w: f32[100] = core.constant() {value = f32[100] dense<sha256:00000000000000000000000000000000>}
   |                                                    ^
   = help: keep the folder `resources` beside the file, or print with inline resources

// ----- elements that do not fit
module @m
graph @main() -> (w: i8[2]) {
  %w: i8[2] = core.constant() {value = i8[2] dense<1, 300>}
  return %w
}
// expect-error
error[parse-error]: '300' is not a value of i8
  --> case.pir:3:46
   |
 3 |   %w: i8[2] = core.constant() {value = i8[2] dense<1, 300>}
   |                                              ^

// ----- used outside its region
module @m
graph @main(%c: bool[], %x: f32[2]) -> (z: f32[2]) {
  %y: f32[2] = core.if(%c) then_branch() {
    %v: f32[2] = math.exp(%x)
    return %v
  } else_branch() {
    return %x
  }
  %z: f32[2] = math.add(%y, %v)
  return %z
}
// expect-error
error[unknown-name]: %v is not defined above
  --> case.pir:9:29
   |
 9 |   %z: f32[2] = math.add(%y, %v)
   |                             ^
