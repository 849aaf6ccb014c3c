"""Kernels of the usual kinds, as people write them."""

from __future__ import annotations

import luban.lang as tl


@tl.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@tl.jit
def softmax_kernel(out_ptr, x_ptr, row_stride, out_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n_cols
    x = tl.load(x_ptr + row * row_stride + columns, mask=mask, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * out_stride + columns, powers / tl.sum(powers, axis=0), mask=mask)


@tl.jit
def leaky(x, slope):
    return tl.where(x >= 0, x, x * slope)


@tl.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACT: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    down, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * across
    first = pid // in_group * GROUP
    size = min(down - first, GROUP)
    pid_m = first + pid % in_group % size
    pid_n = pid % in_group // size
    rows = (pid_m * BM + tl.arange(0, BM)) % M
    columns = (pid_n * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    a_ptrs = a_ptr + (rows[:, None] * stride_am + inner[None, :] * stride_ak)
    b_ptrs = b_ptr + (inner[:, None] * stride_bk + columns[None, :] * stride_bn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=inner[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=inner[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    if ACT == "leaky":
        acc = leaky(acc, 0.01)
    rows = pid_m * BM + tl.arange(0, BM)
    columns = pid_n * BN + tl.arange(0, BN)
    where = c_ptr + stride_cm * rows[:, None] + stride_cn * columns[None, :]
    tl.store(where, acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


@tl.jit
def layer_norm_kernel(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    spread = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)
        x = tl.where(columns < n, x - mean, 0.0)
        spread += x * x
    rstd = 1 / tl.sqrt(tl.sum(spread, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < n
        x = tl.load(x_ptr + columns, mask=mask, other=0.0).to(tl.float32)
        scale, shift = tl.load(w_ptr + columns, mask=mask), tl.load(b_ptr + columns, mask=mask)
        tl.store(y_ptr + columns, (x - mean) * rstd * scale + shift, mask=mask)


@tl.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, length, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + dims[None, :], mask=rows[:, None] < length, other=0.0)
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in tl.range(0, length, BN, num_stages=2):
        keys = start + tl.arange(0, BN)
        inside = keys[:, None] < length
        k = tl.load(k_ptr + keys[:, None] * D + dims[None, :], mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where(keys[None, :] < length, scores, -float("inf"))
        new = tl.maximum(top, tl.max(scores, 1))
        powers = tl.exp(scores - new[:, None])
        ratio = tl.exp(top - new)
        total = total * ratio + tl.sum(powers, 1)
        v = tl.load(v_ptr + keys[:, None] * D + dims[None, :], mask=inside, other=0.0)
        acc = acc * ratio[:, None] + tl.dot(powers, v)
        top = new
    acc = acc / total[:, None]
    tl.store(o_ptr + rows[:, None] * D + dims[None, :], acc, mask=rows[:, None] < length)


@tl.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    keep = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=offsets < n)
