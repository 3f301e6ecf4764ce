// Converts a stage's tensors to the arrays of its snapshots and back.
//
// Internal to worker/stage (it shows LibTorch). Threads: any. Errors: LibTorch's exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "run/file/run_spec.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// Copies a tensor from any device.
NamedArray ToNamedArray(std::string name, const at::Tensor& tensor);
// Makes an array of a GPU's tensor without its values, and adds the tensor in dense form to
// `dense`. The caller copies all values later in one go (host_copies.h).
NamedArray ToCopy(std::string name, const at::Tensor& tensor, std::vector<at::Tensor>* dense);

using ArrayIndex = std::unordered_map<std::string_view, const NamedArray*>;
ArrayIndex Index(const std::vector<NamedArray>& arrays);

// A tensor, and the array that restores it.
struct Restored {
  at::Tensor to;
  const NamedArray* from = nullptr;
};
// kFailedPrecondition: no such array, or it has another shape.
StatusOr<Restored> Match(const ArrayIndex& index, const std::string& name, const at::Tensor& to);
// Refuses a checkpoint that holds another optimizer's state in place of `moment`.
Status CheckKind(const ArrayIndex& index, const std::string& moment, OptimizerKind own);

}  // namespace longhaul::worker
