# The same kind of network, its layers placed by hand on two IPUs. Try
#     poplar-py run samples/models/two_ipus.pml --random-inputs 1 --dim batch=8 --profile report/

def dense(x: f32[b, n], m: int) -> f32[b, m] {
    param w: f32[n, m] = glorot_uniform()
    param c: f32[m] = zeros
    return x @ w + c
}

model two_ipus(x: f32[batch, 784]) -> logits: f32[batch, 10] {
    on ipu 0 { h = relu(dense(x, 512)) }
    on ipu 1 { logits = dense(h, 10) }
}
