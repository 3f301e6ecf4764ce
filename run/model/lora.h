// LoRA: which matrices of a model get adapters, and the adapters' parameters. A module, as in PEFT,
// is a matrix by its published name without ".weight": "model.layers.3.self_attn.q_proj".
//
// An adapter is two matrices. A (rank, inputs) begins with normal numbers of the same variance as
// PEFT's uniform ones. B (outputs, rank) begins with zeros, so an untrained adapter changes
// nothing. They are named like the module, with ".lora_A.weight" and ".lora_B.weight".
//
// Pure, thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "run/model/family.h"

namespace longhaul::model {

// Begins the published names of all adapters, and of nothing else.
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";

// Returns all possible targets: the last parts of modules' names, each once, in the model's order.
// All together are PEFT's "all-linear".
std::vector<std::string> TargetsOf(const ModelSpec& spec);
// True if `target` names at least one module of a block, by PEFT's rule: the module's name is
// `target`, or ends with '.' and `target`.
bool IsModule(const ModelSpec& spec, std::string_view target);

// Returns the parameters of `published`, all frozen, and the adapters of the targets. The adapters
// of a matrix follow the matrix or its bias. With quantize_base all matrices that could be targets
// are quantized, those without adapters too.
std::vector<Parameter> WithAdapters(const LoraSpec& lora, std::vector<Parameter> published);

// The adapters of a matrix.
struct Adapters {
  PlacedParameter a, b;
};
// True if `matrix`, a parameter of the published model, has adapters.
bool HasAdapters(const LoraSpec& lora, const PlacedParameter& matrix);
// Returns the adapters of `matrix`. Aborts unless HasAdapters(lora, matrix).
Adapters AdaptersOf(const LoraSpec& lora, const PlacedParameter& matrix);

// Adds scale * B A to `matrix`, which has the shape `shape`, in fp32. All spans are row-major.
// `matrix` has the published numbers, also where training stored them quantized. Aborts if a span's
// size does not fit.
void Merge(const LoraSpec& lora, const Shape& shape, std::span<const float> a,
           std::span<const float> b, std::span<float> matrix);

}  // namespace longhaul::model
