// How layers come by their parameters: first values, a rank's shares, casts.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/model/init.h"
#include "worker/stage/model/layers.h"

namespace longhaul::worker {

LayerMaker::LayerMaker(const ModelSpec& spec, std::vector<model::PlacedParameter> wanted,
                       const FirstValues& first_values, const at::Device& device,
                       at::ScalarType compute_type, double adapter_scale, const RankGroup* group)
    : wanted_(std::move(wanted)),
      first_values_(first_values),
      device_(device),
      compute_type_(compute_type),
      adapter_scale_(adapter_scale),
      dropout_(spec.lora && spec.lora->dropout > 0 ? std::make_unique<Dropout>(spec.lora->dropout)
                                                   : nullptr),
      group_(group) {
  for (const model::PlacedParameter& placed : wanted_) {
    if (group == nullptr) break;
    const model::Ranks ranks = {.count = group->size(), .experts = group->kind().experts};
    auto share = model::ShareOf(spec, placed.parameter, group->rank(), ranks);
    ThrowIfError(share.status());
    shares_.push_back(*std::move(share));
    const bool trains = placed.parameter.is_block_matrix() && !placed.parameter.frozen;
    parts_.push_back(trains ? MatrixParts::Of(spec, placed.parameter, ranks) : nullptr);
  }
  dequantized_ = MakeDequantizedMemory();
}

std::unique_ptr<DequantizedMemory> LayerMaker::MakeDequantizedMemory() const {
  int64_t largest = 0;
  for (size_t index = 0; index < wanted_.size(); ++index) {
    if (!wanted_[index].parameter.is_quantized() || !IsHere(index)) continue;
    const std::vector<int64_t> sizes = SizesOf(index);
    largest = std::max(largest, sizes[0] * sizes[1]);
  }
  if (largest == 0) return nullptr;
  return std::make_unique<DequantizedMemory>(device_, compute_type_, largest);
}

bool LayerMaker::IsHere(size_t index) const {
  return group_ == nullptr || !shares_[index].ranges.empty();
}

std::vector<int64_t> LayerMaker::SizesOf(size_t index) const {
  const model::Parameter& parameter = wanted_[index].parameter;
  std::vector<int64_t> sizes = {parameter.shape.rows};
  if (parameter.shape.is_matrix()) sizes.push_back(parameter.shape.columns);
  if (group_ == nullptr || parameter.split.along == model::Along::kNothing) return sizes;
  int64_t& shared = sizes[parameter.split.along == model::Along::kColumns ? 1 : 0];
  shared = 0;
  for (const auto& [begin, end] : shares_[index].ranges) shared += end - begin;
  return sizes;
}

int64_t LayerMaker::FirstRow(size_t index) const {
  return group_ == nullptr ? 0 : shares_[index].ranges.front().begin;
}

std::optional<Parameter::Summed> LayerMaker::SummedInGroup(size_t index) const {
  if (group_ == nullptr) return std::nullopt;
  const model::Parameter& parameter = wanted_[index].parameter;
  const bool repeated =
      parameter.split.along != model::Along::kNothing && shares_[index].holders > 1;
  // Norms see this rank's tokens, or its channels, alone. Biases of sums see its channels.
  const bool is_whole = parameter.split.along == model::Along::kNothing;
  const bool is_norm = is_whole && !parameter.in_product;
  const bool is_vector = is_whole && !parameter.shape.is_matrix();
  const RankGroup::Kind& kind = group_->kind();
  const bool sees_part = (is_norm && parameter.role == model::Role::kBlock && kind.sequence) ||
                         (is_vector && parameter.role != model::Role::kEmbedding && kind.partial());
  const bool for_own_part = parameter.for_own_part && shares_[index].holders > 1;
  if (!repeated && !for_own_part && !sees_part) return std::nullopt;
  if (parameter.split.along == model::Along::kExperts) {
    // One expert of each part is summed at a time, and each part has rows of its own for that.
    return Parameter::Summed{int64_t{parameter.shape.rows} * kind.experts,
                             int64_t{parameter.shape.rows} * group_->part_of_experts()};
  }
  return Parameter::Summed{parameter.shape.rows, FirstRow(index)};
}

void LayerMaker::ScaleOwnChannels(at::Tensor* outputs) const {
  const RankGroup::Kind& kind = group_->kind();
  if (!kind.partial()) return;
  outputs->narrow(0, kind.shared_channels, kind.hidden - kind.shared_channels)
      .mul_(std::sqrt(static_cast<double>(group_->size())));
}

bool LayerMaker::IsCountedByOther(size_t index) const {
  return group_ != nullptr && group_->rank() % shares_[index].holders != 0;
}

bool LayerMaker::NextIs(const std::string& name) const {
  return !done() && wanted_[made_.size()].Name() == name;
}

at::Tensor LayerMaker::FirstValue(size_t index) const {
  const model::Parameter& parameter = wanted_[index].parameter;
  const auto [mean, deviation] = parameter.initial;
  const std::vector<int64_t> sizes = SizesOf(index);
  if (first_values_.kind == FirstValues::Kind::kZeros &&
      (!parameter.adapter || first_values_.loads_adapters)) {
    return at::zeros(sizes, at::TensorOptions(at::kFloat).device(device_));
  }
  if (deviation == 0) return at::full(sizes, mean, at::kFloat);
  if (first_values_.kind == FirstValues::Kind::kAny) {
    return at::empty(sizes, device_).normal_(mean, deviation);
  }
  const std::string name = wanted_[index].Name();
  LH_CHECK(mean == 0, "{}: normal numbers around {} are not made", name, mean);
  at::Tensor value = at::empty(sizes);
  const std::span values(value.data_ptr<float>(), static_cast<size_t>(value.numel()));
  if (group_ == nullptr) {
    FillNormal(first_values_.seed, name, deviation, values);
  } else {
    FillNormal(first_values_.seed, name, deviation, model::StretchesOf(parameter, shares_[index]),
               values);
  }
  return value;
}

at::Tensor LayerMaker::FrozenValue(size_t index) const {
  const model::Parameter& parameter = wanted_[index].parameter;
  if (!parameter.is_frozen_in_compute_type()) return FirstValue(index).to(device_);
  std::vector<int64_t> sizes = SizesOf(index);
  const int64_t rows = sizes.front();
  if (parameter.role != model::Role::kBlock) sizes.front() = RowsInHead(rows);
  at::Tensor value =
      at::zeros(sizes, at::TensorOptions(compute_type_).device(device_)).narrow(0, 0, rows);
  if (first_values_.kind != FirstValues::Kind::kZeros) value.copy_(FirstValue(index));
  return value;
}

std::shared_ptr<QuantizedMatrix> LayerMaker::MakeQuantized(size_t index) const {
  const std::vector<int64_t> sizes = SizesOf(index);
  auto matrix = std::make_shared<QuantizedMatrix>(wanted_[index].parameter.quantized, sizes[0],
                                                  sizes[1], dequantized_.get());
  if (first_values_.kind != FirstValues::Kind::kZeros) {
    ThrowIfError(matrix->Set(FirstValue(index).cpu()));
  }
  return matrix;
}

at::Tensor LayerMaker::Make(const std::string& name, Use use) {
  LH_CHECK(NextIs(name), "{} is made where the model's descriptor has {}", name,
           done() ? "nothing more" : wanted_[made_.size()].Name());
  const size_t index = made_.size();
  const model::Parameter& parameter = wanted_[index].parameter;
  LH_CHECK(use == Use::kLookedUp || parameter.in_product == (use == Use::kInProduct),
           "{} is used in another way than the model's descriptor says", name);
  quantized_.resize(index + 1);
  if (!IsHere(index)) return made_.emplace_back();
  if (parameter.is_quantized()) {
    quantized_[index] = MakeQuantized(index);
    return made_.emplace_back(quantized_[index]->stored());
  }
  if (parameter.frozen) return made_.emplace_back(FrozenValue(index));
  at::Tensor first = FirstValue(index);
  if (group_ != nullptr && parameter.split.along == model::Along::kColumns) {
    ScaleOwnChannels(&first);
  }
  at::Tensor value = first.to(device_).set_requires_grad(true);
  made_.push_back(value);
  parameters_.push_back(
      {.name = name,
       .value = value,
       .decays = parameter.decays(),
       .block_matrices = parameter.is_block_matrix() ? parameter.split.stacked : 0,
       .parts = group_ == nullptr ? nullptr : parts_[index],
       .tied = parameter.is_tied(),
       .counted_elsewhere = wanted_[index].repeated || IsCountedByOther(index),
       .summed = SummedInGroup(index),
       .balances = parameter.balances});
  return value;
}

Embedding LayerMaker::MakeEmbedding(const std::string& name) {
  const int64_t first_row = FirstRow(made_.size());
  return {Make(name, Use::kLookedUp), first_row, group_};
}

at::Tensor LayerMaker::DropoutChannels(size_t matrix, size_t a) const {
  std::vector<int64_t> ids;
  const auto add = [&ids](uint32_t begin, uint32_t end) {
    for (uint32_t id = begin; id < end; ++id) ids.push_back(id);
  };
  const model::Parameter& parameter = wanted_[a].parameter;
  if (group_ != nullptr && parameter.split.along == model::Along::kColumns) {
    for (const auto& [begin, end] : shares_[a].ranges) add(begin, end);
  } else {
    add(0, parameter.shape.columns);
  }
  std::string name = wanted_[a].Name();
  // The product's rows are this rank's own tokens; other ranks draw for theirs.
  if (group_ != nullptr && wanted_[matrix].parameter.for_own_part) {
    name += fmt::format(" of rank {}", group_->rank());
  }
  return Dropout::ChannelsOf(name, ids).to(device_);
}

Linear LayerMaker::MakeLinear(const std::string& name) {
  Linear linear;
  const size_t matrix = made_.size();
  const model::Along along = wanted_[matrix].parameter.split.along;
  const bool is_part = group_ != nullptr && along == model::Along::kColumns;
  if (group_ != nullptr && along == model::Along::kRows) linear.overlap = &group_->overlap();
  linear.weight = Make(name + ".weight", Use::kInProduct);
  const bool is_here = linear.weight.defined();
  linear.quantized = quantized_[matrix];
  if (is_here && !linear.quantized) linear.cast_weight = Cast(linear.weight);
  if (NextIs(name + ".bias")) {
    linear.bias = Make(name + ".bias", Use::kInProduct);
    if (!is_part || group_->rank() == 0) {
      linear.cast_bias = Cast(linear.bias);
    } else if (group_->kind().partial()) {
      linear.cast_bias = Cast(linear.bias);
      linear.first_biased = group_->kind().shared_channels;
    }
  }
  if (NextIs(name + ".lora_A.weight")) {
    const size_t a = made_.size();
    Adapter& adapter = linear.adapter;
    adapter.a = Make(name + ".lora_A.weight", Use::kInProduct);
    adapter.b = Make(name + ".lora_B.weight", Use::kInProduct);
    if (!is_here) return linear;
    adapter.cast_a = Cast(adapter.a);
    adapter.cast_b = Cast(adapter.b);
    adapter.scale = adapter_scale_;
    adapter.dropout = dropout_.get();
    adapter.state = adapters_.get();
    if (dropout_) adapter.channels = DropoutChannels(matrix, a);
  }
  return linear;
}

int64_t LayerMaker::RowsInHead(int64_t rows) const {
  // Elements of bf16 in 16 bytes.
  constexpr int64_t kAlignment = 8;
  const bool aligned = device_.is_cuda() && compute_type_ == at::kBFloat16;
  return aligned ? (rows + kAlignment - 1) / kAlignment * kAlignment : rows;
}

at::Tensor LayerMaker::Stack(std::vector<Linear>& linears) {
  constexpr int64_t kAlignment = 8;  // of bf16: 16 bytes
  if (linears.empty() || !device_.is_cuda() || compute_type_ != at::kBFloat16) return {};
  const at::Tensor& first = linears.front().weight;
  if (!first.requires_grad()) return {};
  if (first.size(0) % kAlignment != 0 || first.size(1) % kAlignment != 0) return {};
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(linears.size()));
  at::Tensor stack = at::empty(sizes, first.options().dtype(compute_type_).requires_grad(false));
  for (size_t i = 0; i < linears.size(); ++i) {
    const at::Tensor own = stack.select(0, static_cast<int64_t>(i));
    own.copy_(linears[i].cast_weight);
    for (at::Tensor& cast : casts_) {
      if (cast.data_ptr() == linears[i].cast_weight.data_ptr()) cast = own;
    }
    linears[i].cast_weight = own;
  }
  return stack;
}

Head LayerMaker::MakeHead(const std::string& name, const std::string& embedding_name,
                          const Embedding& embedding) {
  if (embedding.weight.defined() && !NextIs(name + ".weight")) {
    return HeadOver(embedding.weight, embedding.first_row);
  }
  const int64_t first_row = FirstRow(made_.size());
  const std::string own = NextIs(name + ".weight") ? name + ".weight" : embedding_name;
  return HeadOver(Make(own, Use::kInProduct), first_row);
}

Head LayerMaker::HeadOver(const at::Tensor& weight, int64_t first_row) {
  return {weight, Cast(weight, RowsInHead(weight.size(0))), first_row, group_};
}

LayerNorm LayerMaker::MakeLayerNorm(const std::string& name, double epsilon) {
  LayerNorm norm;
  norm.weight = Make(name + ".weight", Use::kInFp32);
  norm.bias = Make(name + ".bias", Use::kInFp32);
  norm.epsilon = epsilon;
  return norm;
}

RmsNorm LayerMaker::MakeRmsNorm(const std::string& name, double epsilon, bool from_one) {
  return {Make(name + ".weight", Use::kInFp32), epsilon, from_one};
}

at::Tensor LayerMaker::Cast(const at::Tensor& parameter, int64_t rows) {
  if (compute_type_ == at::kFloat) return parameter.detach();
  std::vector<int64_t> sizes = parameter.sizes().vec();
  sizes.front() = rows;
  // FrozenValue made as many rows.
  if (!parameter.requires_grad()) return parameter.as_strided(sizes, parameter.strides());
  at::Tensor whole = at::zeros(sizes, parameter.options().dtype(compute_type_));
  cast_.push_back(parameter);
  casts_.push_back(whole.narrow(0, 0, parameter.size(0)));
  casts_.back().copy_(parameter.detach());
  return whole;
}

Status LayerMaker::Load(const ReadParameter& read) const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < made_.size(); ++i) {
    const model::Parameter& parameter = wanted_[i].parameter;
    const bool is_loaded =
        parameter.is_published() || (parameter.adapter && first_values_.loads_adapters);
    if (!is_loaded) continue;
    if (!made_[i].defined()) {  // other ranks'; all ranks read all the same
      LH_RETURN_IF_ERROR(read(wanted_[i], {}));
      continue;
    }
    const at::Tensor values = at::empty(SizesOf(i));
    LH_RETURN_IF_ERROR(
        read(wanted_[i], std::span(values.data_ptr<float>(), static_cast<size_t>(values.numel()))));
    if (!quantized_[i]) {
      made_[i].detach().copy_(values);
    } else if (const Status set = quantized_[i]->Set(values); !set.ok()) {
      return InvalidArgument("{} cannot be stored as {}: {}; leave train.lora.quantize_base out",
                             wanted_[i].Name(), ToString(parameter.quantized), Message(set));
    }
  }
  RefreshCasts();
  return absl::OkStatus();
}

uint64_t LayerMaker::frozen_bytes() const {
  uint64_t bytes = dequantized_ ? dequantized_->bytes() : 0;
  for (const at::Tensor& value : made_) {
    if (value.defined() && !value.requires_grad()) bytes += value.nbytes();
  }
  return bytes;
}

void LayerMaker::RefreshCasts() const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < casts_.size(); ++i) casts_[i].copy_(cast_[i]);
}

}  // namespace longhaul::worker
