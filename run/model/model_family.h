// The families of models. A new family is a value here, with its descriptor in a file of its own
// beside gpt.cc.
#pragma once

#include <cstdint>

namespace longhaul {

// "gpt": GPT-2's layers. "llama": RMSNorm, rotary embeddings, grouped-query attention, SwiGLU, no
// biases; Qwen2.5 is llama with `qkv_bias`, Qwen3 is llama with `qk_norm`. "moe": llama with a
// mixture of experts in place of the MLP. Mixtral is moe, Qwen2-MoE is moe with `qkv_bias`, and
// Qwen3-MoE with `qk_norm`. family.h has the type of a descriptor.
enum class ModelFamily : uint8_t { kGpt, kLlama, kMoe };

namespace model {

struct Family;
const Family& GptFamily();
const Family& LlamaFamily();
const Family& MoeFamily();
// The functions that return the descriptors, in the order of the enum.
inline constexpr const Family& (*kFamilies[])() = {GptFamily, LlamaFamily, MoeFamily};

}  // namespace model
}  // namespace longhaul
