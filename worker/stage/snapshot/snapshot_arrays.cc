#include "worker/stage/snapshot/snapshot_arrays.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "worker/stage/optimizer/optimizer.h"

namespace longhaul::worker {

NamedArray ToNamedArray(std::string name, const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().to(at::kFloat).cpu().contiguous();
  const float* values = dense.const_data_ptr<float>();
  return {std::move(name), dense.sizes().vec(), {values, values + dense.numel()}};
}

NamedArray ToCopy(std::string name, const at::Tensor& tensor, std::vector<at::Tensor>* dense) {
  dense->push_back(tensor.detach().contiguous());
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, name, " is neither fp32 nor bf16");
  return {std::move(name), tensor.sizes().vec(), {}};
}

ArrayIndex Index(const std::vector<NamedArray>& arrays) {
  ArrayIndex index;
  for (const NamedArray& array : arrays) index.emplace(array.name, &array);
  return index;
}

StatusOr<Restored> Match(const ArrayIndex& index, const std::string& name, const at::Tensor& to) {
  const auto it = index.find(name);
  if (it == index.end()) {
    return FailedPrecondition("the checkpoint has no {}; it is of another model", name);
  }
  const NamedArray& from = *it->second;
  if (at::IntArrayRef(from.shape) != to.sizes() ||
      from.values.size() != static_cast<size_t>(to.numel())) {
    return FailedPrecondition(
        "expected {} of shape ({}), but the checkpoint has ({}); it is of another model", name,
        fmt::join(to.sizes().vec(), ", "), fmt::join(from.shape, ", "));
  }
  return Restored{to, &from};
}

Status CheckKind(const ArrayIndex& index, const std::string& moment, OptimizerKind own) {
  if (index.contains(moment)) return absl::OkStatus();
  const std::string parameter = moment.substr(0, moment.rfind('.'));
  const bool muon = own == OptimizerKind::kMuon;
  const std::string other = fmt::format("{}{}", parameter, muon ? kExpAvg : kMomentum);
  if (!index.contains(other)) return absl::OkStatus();
  const OptimizerKind others = muon ? OptimizerKind::kAdamW : OptimizerKind::kMuon;
  return FailedPrecondition(
      "the checkpoint was trained with train.optimizer.kind: {0}, and the run file has {1}, which "
      "remembers other things of {2}; go on with {0}, or begin a new run",
      ToString(others), ToString(own), parameter);
}

}  // namespace longhaul::worker
