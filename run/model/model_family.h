// The families of models. A new family is a value here, with its descriptor in a file of its own
// beside gpt.cc.
#pragma once

#include <cstdint>

namespace longhaul {

// "gpt": GPT-2's layers. "llama": RMSNorm, rotary embeddings, grouped-query attention, SwiGLU, no
// biases; Qwen2.5 is this with `qkv_bias`, Qwen3 with `qk_norm`. "moe": llama with a mixture of
// experts for an MLP; Mixtral, Qwen2-MoE with `qkv_bias`, Qwen3-MoE with `qk_norm`. family.h
// describes the families.
enum class ModelFamily : uint8_t { kGpt, kLlama, kMoe };

namespace model {

struct Family;
const Family& GptFamily();
const Family& LlamaFamily();
const Family& MoeFamily();
// In the order of the enum.
inline constexpr const Family& (*kFamilies[])() = {GptFamily, LlamaFamily, MoeFamily};

}  // namespace model
}  // namespace longhaul
