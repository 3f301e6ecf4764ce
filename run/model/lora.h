// LoRA: which matrices of a model get adapters, and what these are. A module is what PEFT calls so:
// a matrix by its published name without ".weight", such as "model.layers.3.self_attn.q_proj".
//
// A (rank, inputs) begins with normal numbers of the variance that PEFT's uniform ones have, B
// (outputs, rank) with zeros, so an untrained model computes what was published. Their names are
// the module's with ".lora_A.weight" and ".lora_B.weight".
//
// Pure, thread-safe.
#ifndef LONGHAUL_RUN_MODEL_LORA_H_
#define LONGHAUL_RUN_MODEL_LORA_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "run/model/family.h"

namespace longhaul::model {

// What a target may be called: the last parts of modules' names, each once, in the model's order.
// All of them are what PEFT calls "all-linear".
std::vector<std::string> TargetsOf(const ModelSpec& spec);
// Whether `target` names at least one module of a block. As PEFT: a module is called so, or its
// name ends with '.' and that.
bool IsModule(const ModelSpec& spec, std::string_view target);

// The published model's parameters, frozen, and adapters of the targets among them.
std::vector<Parameter> WithAdapters(const LoraSpec& lora, std::vector<Parameter> published);

// The adapters of a matrix.
struct Adapters {
  PlacedParameter a, b;
};
// Whether `matrix`, of the model as published, has any.
bool HasAdapters(const LoraSpec& lora, const PlacedParameter& matrix);
Adapters AdaptersOf(const LoraSpec& lora, const PlacedParameter& matrix);

// Adds scale * B A to `matrix`, of `shape`, in fp32.
void Merge(const LoraSpec& lora, const Shape& shape, std::span<const float> a,
           std::span<const float> b, std::span<float> matrix);

}  // namespace longhaul::model

#endif  // LONGHAUL_RUN_MODEL_LORA_H_
