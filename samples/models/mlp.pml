# A classifier of 28 x 28 images: three dense layers. Try
#     poplar-py run samples/models/mlp.pml --random-inputs 1 --dim batch=8

def dense(x: f32[b, n], m: int) -> f32[b, m] {
    param w: f32[n, m] = glorot_uniform()
    param c: f32[m] = zeros
    return x @ w + c
}

model mlp(x: f32[batch, 784]) -> logits: f32[batch, 10] {
    h = relu(dense(x, 256))
    h = relu(dense(h, 256))
    logits = dense(h, 10)
}
