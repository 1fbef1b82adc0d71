// Attention between projected queries and projected keys and values, on the tape.
#pragma once

#include "regard/multi_head.h"

namespace regard::detail {

// q [batch, q_len, heads * head_dim], kv [batch, kv_len, 2 * kv_heads * head_dim]:
// keys, then values. -> the shape of q, heads side by side. Reads heads, kv_heads,
// model_dim and dropout of the config.
template <class T>
Var<T> attend_heads(Tape<T>& tape, const MultiHeadConfig& config, const Var<T>& q, const Var<T>& kv,
                    const AttentionCall<T>& call);

}  // namespace regard::detail
