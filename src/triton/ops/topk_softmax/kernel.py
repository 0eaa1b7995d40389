"""The experts of tokens: the largest of each row of scores, and their softmax."""

import triton
import triton.language as tl


@triton.jit
def store_numbers(numbers, size, offset, values, mask):
    """Store integers of ``size`` bytes."""
    if size == 8:
        tl.store(numbers.to(tl.pointer_type(tl.int64)) + offset, values.to(tl.int64), mask)
    else:
        tl.store(numbers + offset, values, mask)


@triton.jit
def topk_softmax(
    gating_output,
    bias,
    weights,
    indices,
    numbers,  # token_expert_indices
    tokens,
    experts,
    chosen,  # of them, for each token
    renormalize,
    has_bias,
    indices_size,  # bytes of an index
    numbers_size,
    gating_token,
    gating_expert,
    bias_expert,
    weights_token,
    weights_choice,
    indices_token,
    indices_choice,
    numbers_token,
    numbers_choice,
    BLOCK: tl.constexpr,  # at least as many as experts
    ROWS: tl.constexpr,
    CHOICES: tl.constexpr,  # at least as many as chosen
):
    """Choose the experts of ROWS tokens per program."""
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = token.to(tl.int64)[:, None]
    is_token = (token < tokens)[:, None]
    expert = tl.arange(0, BLOCK)[None, :]
    place = expert.to(tl.int64)
    is_expert = expert < experts
    score = tl.load(
        gating_output + row * gating_token + place * gating_expert, mask=is_token & is_expert
    )
    score = tl.where(is_expert, score.to(tl.float32), float("-inf"))
    # A NaN can be lost in the maximum, but it reappears in the sum.
    power = tl.exp(score - tl.max(score, 1, keep_dims=True))
    probability = power / tl.sum(power, 1, keep_dims=True)
    key = score
    if has_bias != 0:
        key = probability + tl.load(bias + place * bias_expert, mask=is_expert)
    # Integers with the order of the keys: NaN is above all others, and -0 is 0.
    bits = tl.where(key == 0, 0.0, key).to(tl.int32, bitcast=True)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    order = tl.where(key != key, 0x7FFFFFFF, order)
    lowest = -0x80000000  # below that of -infinity
    order = tl.where(is_expert, order, lowest)
    choice = tl.arange(0, CHOICES)[None, :]
    found = tl.zeros((ROWS, CHOICES), tl.int32)
    weight = tl.zeros((ROWS, CHOICES), tl.float32)
    for j in range(chosen):
        largest = tl.max(order, 1, keep_dims=True)
        first = tl.min(tl.where(order == largest, expert, BLOCK), 1, keep_dims=True)
        is_first = expert == first
        own = tl.sum(tl.where(is_first, probability, 0.0), 1, keep_dims=True)
        found = tl.where(choice == j, first, found)
        weight = tl.where(choice == j, own, weight)
        order = tl.where(is_first, lowest, order)
    if renormalize != 0:
        total = tl.sum(weight, 1, keep_dims=True)
        weight = weight / tl.where(total == 0, 1.0, total)
    mask = is_token & (choice < chosen)
    column = choice.to(tl.int64)
    tl.store(weights + row * weights_token + column * weights_choice, weight, mask)
    offset = row * indices_token + column * indices_choice
    store_numbers(indices, indices_size, offset, found, mask)
    offset = row * numbers_token + column * numbers_choice
    store_numbers(numbers, numbers_size, offset, choice * tokens + token[:, None], mask)
