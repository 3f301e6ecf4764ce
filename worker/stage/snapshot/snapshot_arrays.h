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

// Copies a tensor from any device, as fp32.
NamedArray ToNamedArray(std::string name, const at::Tensor& tensor);
// Makes the array of a tensor on a GPU, without values. Appends the tensor, made contiguous, to
// `dense`: the caller later copies the values of all these tensors at once (host_copies.h).
NamedArray ToCopy(std::string name, const at::Tensor& tensor, std::vector<at::Tensor>* dense);

using ArrayIndex = std::unordered_map<std::string_view, const NamedArray*>;
// Finds arrays by name. `arrays` must outlive the result.
ArrayIndex Index(const std::vector<NamedArray>& arrays);

// A tensor that is restored, and the array with its new values, which the ArrayIndex refers to.
struct Restored {
  at::Tensor to;
  const NamedArray* from = nullptr;
};
// Finds the array `name` for the tensor `to`; copies nothing. kFailedPrecondition: no array has
// this name, or the array has another shape than `to`.
StatusOr<Restored> Match(const ArrayIndex& index, const std::string& name, const at::Tensor& to);
// Checks that a checkpoint's optimizer state is of kind `own`. Returns OK if `index` has `moment`
// ("<parameter>.exp_avg"), or no optimizer state of this parameter. kFailedPrecondition: `index`
// has state of the other kind.
Status CheckKind(const ArrayIndex& index, const std::string& moment, OptimizerKind own);

}  // namespace longhaul::worker
