// run: ""

// ----- several errors at once
model m(x: f32[2, 3]) -> y: f32[2, 3] {
    a = relux(x)
    b = x @ x
    c = a + b
    param w: f32[3] = [1, 2]
    y = x
}
// expect-error
error[unknown-name]: there is no function relux
  --> case.pml:2:9
   |
 2 |     a = relux(x)
   |         ^
   = help: did you mean relu?

error[shape-error]: nn.matmul: inner sizes differ: f32[2,3] and f32[2,3]
  --> case.pml:3:11
   |
 3 |     b = x @ x
   |           ^
   = help: transpose an operand

error[shape-error]: a list of shape [2] for a weight f32[3]
  --> case.pml:5:23
   |
 5 |     param w: f32[3] = [1, 2]
   |                       ^

3 errors

// ----- an error inside a function
def f(x: f32[a, b]) -> f32[b, a] {
    return x @ x
}
model m(x: f32[2, 3]) -> y: f32[3, 2] {
    y = f(x)
}
// expect-error
error[shape-error]: nn.matmul: inner sizes differ: f32[2,3] and f32[2,3]
  --> case.pml:2:14
   |
 2 |     return x @ x
   |              ^
   = note: in f, called at case.pml:5:9
   = help: transpose an operand

// ----- unknown name
model m(x: f32[2]) -> y: f32[2] {
    input = x
    y = inptu + 1
}
// expect-error
error[unknown-name]: there is no value inptu
  --> case.pml:3:9
   |
 3 |     y = inptu + 1
   |         ^
   = help: did you mean input?

// ----- a result that is never set
model m(x: f32[2]) -> (y: f32[2], z: f32[2]) {
    y = x
}
// expect-error
error[unknown-name]: the result z is never set
  --> case.pml:1:35
   |
 1 | model m(x: f32[2]) -> (y: f32[2], z: f32[2]) {
   |                                   ^

// ----- a result of another shape
model m(x: f32[2]) -> y: f32[3] {
    y = x
}
// expect-error
error[shape-error]: the result y is f32[2], declared as f32[3]
  --> case.pml:1:26
   |
 1 | model m(x: f32[2]) -> y: f32[3] {
   |                          ^

// ----- a function that calls itself
def f(x) { return g(x) }
def g(x) { return f(x) }
model m(x: f32[2]) -> y: f32[2] { y = f(x) }
// expect-error
error[nesting-too-deep]: f calls itself: f -> g -> f
  --> case.pml:2:19
   |
 2 | def g(x) { return f(x) }
   |                   ^
   = note: in g, called at case.pml:1:19
   = note: in f, called at case.pml:3:39

// ----- arguments that do not fit
def f(x: f32[n, n], k: int) -> f32[n, n] { return x }
model m(x: f32[2, 3]) -> y: f32[2, 3] {
    a = f(x, 1)
    b = f(x)
    c = f(x, 1.5)
    d = f(x, 1, 2)
    e = f(x, 1, z=2)
    y = x
}
// expect-error
error[shape-error]: f: argument x is f32[2,3], dim 3 should be 2
  --> case.pml:3:9
   |
 3 |     a = f(x, 1)
   |         ^

error[type-mismatch]: f needs the argument k
  --> case.pml:4:9
   |
 4 |     b = f(x)
   |         ^

error[type-mismatch]: f: argument k must be int, not the number 1.5
  --> case.pml:5:9
   |
 5 |     c = f(x, 1.5)
   |         ^

error[type-mismatch]: f takes 2 arguments, not 3
  --> case.pml:6:9
   |
 6 |     d = f(x, 1, 2)
   |         ^

error[type-mismatch]: f: argument z is not one of its parameters
  --> case.pml:7:9
   |
 7 |     e = f(x, 1, z=2)
   |         ^

5 errors

// ----- a free dim in a weight
model m(x: f32[batch]) -> y: f32[batch] {
    param w: f32[batch] = ones
    y = x * w
}
// expect-error
error[shape-error]: the weight w of type f32[batch] has free dims
  --> case.pml:2:11
   |
 2 |     param w: f32[batch] = ones
   |           ^
   = help: the dims of weights must be known: bind them with --dim

// ----- a free dim in arithmetic
model m(x: f32[batch]) -> y: f32[batch] {
    n = batch * 2
    y = x
}
// expect-error
error[type-mismatch]: dim batch has no size to compute with yet
  --> case.pml:2:15
   |
 2 |     n = batch * 2
   |               ^
   = help: bind it: --dim batch=N

// ----- training is reserved
train m
// expect-error
error[parse-error]: `train` is reserved until training lands
  --> case.pml:1:1
   |
 1 | train m
   | ^

// ----- syntax
model m(x: f32[2]) -> y: f32[2] {
    y = x +
}
// expect-error
error[parse-error]: the line ends too soon
  --> case.pml:2:12
   |
 2 |     y = x +
   |            ^
   = help: expected '(', '+', '-', '[', 'false', 'none', 'true', a name, a number or a string

// ----- a missing brace
model m(x: f32[2]) -> y: f32[2] {
    y = x
// expect-error
error[parse-error]: the text ends too soon
  --> case.pml:3:1
   = help: expected 'on', 'param', 'repeat', 'return', '}' or a name

// ----- a strange character
model m(x: f32[2]) -> y: f32[2] { y = x $ 2 }
// expect-error
error[parse-error]: unexpected '$'
  --> case.pml:1:41
   |
 1 | model m(x: f32[2]) -> y: f32[2] { y = x $ 2 }
   |                                         ^

// ----- no model
def f(x) { return x }
// expect-error
error[parse-error]: there is no model in the file
  --> case.pml:1:1
   |
 1 | def f(x) { return x }
   | ^

// ----- an input without a type
model m(x) -> y: f32[2] { y = x }
// expect-error
error[type-mismatch]: input x of a model needs a tensor type
  --> case.pml:1:9
   |
 1 | model m(x) -> y: f32[2] { y = x }
   |         ^
   = help: write x: f32[batch, 16]

error[unknown-name]: there is no value x
  --> case.pml:1:31
   |
 1 | model m(x) -> y: f32[2] { y = x }
   |                               ^

2 errors

// ----- weights from outside the folder
model m(x: f32[2]) -> y: f32[2] {
    param w: f32[2] = load("../w.npz", "w")
    y = x + w
}
// expect-error
error[file-error]: '../w.npz' lies outside the folder of the model
  --> case.pml:2:23
   |
 2 |     param w: f32[2] = load("../w.npz", "w")
   |                       ^
   = help: move the file beside the .pml file

// ----- a missing file
model m(x: f32[2]) -> y: f32[2] {
    param w: f32[2] = load("missing.npz", "w")
    y = x + w
}
// expect-error
error[file-error]: there is no file 'missing.npz' in the folder of the model
  --> case.pml:2:23
   |
 2 |     param w: f32[2] = load("missing.npz", "w")
   |                       ^

// ----- a dim of 2^40
model m(x: f32[2]) -> y: f32[2] {
    param w: f32[1099511627776] = normal()
    y = x
}
// expect-error
error[shape-error]: the weight w of type f32[1099511627776] is too large (8192 GiB while it is made)
  --> case.pml:2:35
   |
 2 |     param w: f32[1099511627776] = normal()
   |                                   ^
   = help: use smaller dims

// ----- element types that differ
model m(x: f32[2], i: i32[2]) -> y: f32[2] {
    a = i * 0.5
    y = x + i
}
// expect-error
error[type-mismatch]: the number 0.5 (float64) does not fit the element type i32
  --> case.pml:2:11
   |
 2 |     a = i * 0.5
   |           ^

error[type-mismatch]: math.add: operands are f32[2] and i32[2]
  --> case.pml:3:11
   |
 3 |     y = x + i
   |           ^
   = help: cast one of them

2 errors

// ----- return inside repeat
def f(x) { repeat 2 { return x } }
model m(x: f32[2]) -> y: f32[2] { y = f(x) }
// expect-error
error[type-mismatch]: `return` inside `repeat`
  --> case.pml:1:23
   |
 1 | def f(x) { repeat 2 { return x } }
   |                       ^
   = note: in f, called at case.pml:2:39

// ----- an IPU that is no number
model m(x: f32[2]) -> y: f32[2] {
    on ipu 1.5 { y = x }
}
// expect-error
error[type-mismatch]: the number of an IPU must be an integer, not the number 1.5
  --> case.pml:2:12
   |
 2 |     on ipu 1.5 { y = x }
   |            ^
