#include "worker/stage/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "worker/stage/init.h"
#include "worker/stage/torch_scope.h"

namespace longhaul::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

void AddToGradient(const at::Tensor& parameter, const at::Tensor& more) {
  at::Tensor& sum = parameter.mutable_grad();
  if (sum.defined()) {
    sum.add_(more);
  } else {
    sum = more.to(at::kFloat);
  }
}

// Of a product that is not made apart from the sum that it is added to: the head's of a large
// vocabulary, for each chunk of tokens.
constexpr int64_t kLargeProduct = int64_t{16} << 20;

void AddProductToGradient(const at::Tensor& parameter, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor& sum = parameter.mutable_grad();
  if (a.size(1) == 0) {  // of an expert that no token has gone to
    if (!sum.defined()) sum = at::zeros_like(parameter);
    return;
  }
  if (sum.defined() && a.scalar_type() == at::kFloat && a.size(0) * b.size(1) > kLargeProduct) {
    sum.addmm_(a, b);
  } else if (!a.is_cuda() || a.scalar_type() == at::kFloat) {
    AddToGradient(parameter, a.mm(b));
  } else if (sum.defined()) {
    at::addmm_out(sum, sum, a, b, at::kFloat);
  } else {
    sum = at::mm(a, b, at::kFloat);
  }
}

// Now, or beside an exchange.
void Do(std::function<void()> work, Overlap* overlap) {
  if (overlap == nullptr) {
    work();
  } else {
    overlap->Defer(std::move(work));
  }
}

at::Tensor Rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

// The sizes of `x` with another last one.
std::vector<int64_t> WithLast(const at::Tensor& x, int64_t last) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = last;
  return sizes;
}

// What autograd sees of a Linear.
struct Product : torch::autograd::Function<Product> {
  static Variable forward(AutogradContext* context, const Variable& x, const Linear* layer) {
    const at::Tensor input = x.to(layer->cast_weight.scalar_type());
    if (layer->weight.requires_grad()) context->save_for_backward({input});
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    context->saved_data["type"] = x.scalar_type();
    if (layer->first_biased == 0) return at::linear(input, layer->cast_weight, layer->cast_bias);
    at::Tensor output = at::linear(input, layer->cast_weight);
    Biased(*layer, output).add_(Biased(*layer, layer->cast_bias));
    return output;
  }
  // The part of `tensor` that has the outputs to which the bias is added.
  static at::Tensor Biased(const Linear& layer, const at::Tensor& tensor) {
    return tensor.narrow(-1, layer.first_biased, tensor.size(-1) - layer.first_biased);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const layer = reinterpret_cast<const Linear*>(  // NOLINT(performance-no-int-to-ptr)
        context->saved_data["layer"].toInt());
    const at::Tensor rows = Rows(gradients[0]);
    if (layer->weight.requires_grad()) {
      const auto of_parameters = [layer, rows, input = context->get_saved_variables()[0]] {
        AddProductToGradient(layer->weight, rows.t(), Rows(input));
        if (layer->bias.defined()) {
          at::Tensor of_bias = rows.sum(at::IntArrayRef{0}, /*keepdim=*/false, at::kFloat);
          if (layer->first_biased > 0) of_bias.narrow(0, 0, layer->first_biased).zero_();
          AddToGradient(layer->bias, of_bias);
        }
      };
      Do(of_parameters, layer->overlap);
    }
    return {rows.mm(layer->cast_weight)
                .view(WithLast(gradients[0], layer->cast_weight.size(1)))
                .to(context->saved_data["type"].toScalarType()),
            Variable()};
  }
};

// What autograd sees of a Linear with an adapter. `b` is an argument so that it looks for a
// gradient where `x` has none: in the first block, behind a frozen embedding.
struct AdaptedProduct : torch::autograd::Function<AdaptedProduct> {
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& /*b*/,
                          const Linear* layer) {
    const Adapter& adapter = layer->adapter;
    const at::Tensor input = Rows(x).to(layer->cast_weight.scalar_type());
    const at::Tensor low = input.mm(adapter.cast_a.t()).mul_(adapter.scale);
    context->save_for_backward({input, low});
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    context->saved_data["type"] = x.scalar_type();
    return at::linear(input, layer->cast_weight, layer->cast_bias)
        .addmm_(low, adapter.cast_b.t())
        .view(WithLast(x, layer->cast_weight.size(0)));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const layer = reinterpret_cast<const Linear*>(  // NOLINT(performance-no-int-to-ptr)
        context->saved_data["layer"].toInt());
    const Adapter& adapter = layer->adapter;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &low = saved[1];
    const at::Tensor rows = Rows(gradients[0]);
    const at::Tensor of_low = rows.mm(adapter.cast_b).mul_(adapter.scale);
    AddProductToGradient(adapter.b, rows.t(), low);
    AddProductToGradient(adapter.a, of_low.t(), input);
    if (!context->needs_input_grad(0)) return {Variable(), Variable(), Variable()};
    return {rows.mm(layer->cast_weight)
                .addmm_(of_low, adapter.cast_a)
                .view(WithLast(gradients[0], layer->cast_weight.size(1)))
                .to(context->saved_data["type"].toScalarType()),
            Variable(), Variable()};
  }
};

// What autograd sees of a Head. Its matrices have a column for every row of cast_weight.
struct HeadProduct : torch::autograd::Function<HeadProduct> {
  static Variable forward(AutogradContext* context, const Variable& x, const Head* head) {
    const at::Tensor input = Rows(x).to(head->cast_weight.scalar_type());
    if (head->weight.requires_grad()) context->save_for_backward({input});
    context->saved_data["head"] = reinterpret_cast<int64_t>(head);
    context->saved_data["type"] = x.scalar_type();
    return input.mm(head->cast_weight.t())
        .narrow(1, 0, head->weight.size(0))
        .to(at::kFloat)
        .view(WithLast(x, head->weight.size(0)));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const head = reinterpret_cast<const Head*>(  // NOLINT(performance-no-int-to-ptr)
        context->saved_data["head"].toInt());
    const int64_t vocabulary = head->weight.size(0), columns = head->cast_weight.size(0);
    at::Tensor rows = Rows(gradients[0]);
    if (columns == vocabulary) {
      rows = rows.to(head->cast_weight.scalar_type());
    } else {
      const at::Tensor whole =
          at::empty({rows.size(0), columns}, head->cast_weight.options().requires_grad(false));
      whole.narrow(1, 0, vocabulary).copy_(rows);
      whole.narrow(1, vocabulary, columns - vocabulary).zero_();
      rows = whole;
    }
    if (head->weight.requires_grad()) {
      const auto of_weight = [head, rows, vocabulary, input = context->get_saved_variables()[0]] {
        AddProductToGradient(head->weight, rows.narrow(1, 0, vocabulary).t(), input);
      };
      Do(of_weight, head->group == nullptr ? nullptr : &head->group->overlap());
    }
    return {rows.mm(head->cast_weight)
                .view(WithLast(gradients[0], head->cast_weight.size(1)))
                .to(context->saved_data["type"].toScalarType()),
            Variable()};
  }
};

// What autograd sees of a Scorer.
struct ScoreProduct : torch::autograd::Function<ScoreProduct> {
  static Variable forward(AutogradContext* context, const Variable& x, const Scorer* scorer) {
    context->save_for_backward({x});
    context->saved_data["scorer"] = reinterpret_cast<int64_t>(scorer);
    return x.to(at::kFloat).mm(scorer->weight.detach().to(at::kFloat).t());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const scorer =
        reinterpret_cast<const Scorer*>(  // NOLINT(performance-no-int-to-ptr)
            context->saved_data["scorer"].toInt());
    const at::Tensor x = context->get_saved_variables()[0];
    if (scorer->weight.requires_grad()) {
      AddProductToGradient(scorer->weight, gradients[0].t(), x.to(at::kFloat));
    }
    return {gradients[0].mm(scorer->weight.detach().to(at::kFloat)).to(x.scalar_type()),
            Variable()};
  }
};

// What autograd sees of an Embedding. `weight` is an argument so that it looks for a gradient.
struct Lookup : torch::autograd::Function<Lookup> {
  static Variable forward(AutogradContext* context, const Variable& weight, const at::Tensor& ids) {
    context->save_for_backward({weight, ids});
    return at::embedding(weight, ids).to(at::kFloat);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &weight = saved[0], &ids = saved[1];
    if (!weight.is_cuda()) {
      AddToGradient(weight, at::embedding_dense_backward(gradients[0], ids, weight.size(0),
                                                         /*padding_idx=*/-1, false));
      return {Variable(), Variable()};
    }
    at::Tensor& sum = weight.mutable_grad();
    if (!sum.defined()) sum = at::zeros_like(weight);
    // "Unsafe" does not look whether ids are within the table, for which it would wait.
    at::_index_put_impl_(sum, {ids}, gradients[0], /*accumulate=*/true, /*unsafe=*/true);
    return {Variable(), Variable()};
  }
};

}  // namespace

at::Tensor Embedding::operator()(const at::Tensor& ids) const {
  if (group == nullptr) return Lookup::apply(weight, ids);
  const at::Tensor own = ids - first_row;
  const at::Tensor others = own.lt(0).logical_or(own.ge(weight.size(0))).unsqueeze(-1);
  // Masked, so that others' rows have no gradient here.
  return group->LeaveWhole(
      Lookup::apply(weight, own.clamp(0, weight.size(0) - 1)).masked_fill(others, 0));
}

at::Tensor Linear::operator()(const at::Tensor& x) const {
  if (adapter.b.defined()) return AdaptedProduct::apply(x, adapter.b, this);
  return Product::apply(x, this);
}

at::Tensor Head::operator()(const at::Tensor& x) const {
  if (group != nullptr) {
    return HeadProduct::apply(group->EnterWhole(x.to(cast_weight.scalar_type())), this);
  }
  return HeadProduct::apply(x, this);
}

at::Tensor Scorer::operator()(const at::Tensor& x) const {
  return ScoreProduct::apply(x, this);
}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, epsilon);
}

at::Tensor RmsNorm::operator()(const at::Tensor& x) const {
  return at::rms_norm(x, weight.sizes(), weight, epsilon);
}

LayerMaker::LayerMaker(const ModelSpec& spec, std::vector<model::PlacedParameter> wanted,
                       const FirstValues& first_values, const at::Device& device,
                       at::ScalarType compute_type, double adapter_scale, const RankGroup* group)
    : wanted_(std::move(wanted)),
      first_values_(first_values),
      device_(device),
      compute_type_(compute_type),
      adapter_scale_(adapter_scale),
      group_(group) {
  if (group == nullptr) return;
  for (const model::PlacedParameter& placed : wanted_) {
    auto share = model::ShareOf(spec, placed.parameter, group->rank(),
                                {.count = group->size(), .experts = group->kind().experts});
    ThrowIfError(share.status());
    shares_.push_back(*std::move(share));
  }
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
  if (first_values_.kind == FirstValues::Kind::kZeros && !parameter.adapter) {
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

at::Tensor LayerMaker::Make(const std::string& name, Use use) {
  LH_CHECK(NextIs(name), "{} is made where the model's descriptor has {}", name,
           done() ? "nothing more" : wanted_[made_.size()].Name());
  const size_t index = made_.size();
  const model::Parameter& parameter = wanted_[index].parameter;
  LH_CHECK(use == Use::kLookedUp || parameter.in_product == (use == Use::kInProduct),
           "{} is used in another way than the model's descriptor says", name);
  if (group_ != nullptr && shares_[index].ranges.empty()) return made_.emplace_back();
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

Linear LayerMaker::MakeLinear(const std::string& name) {
  Linear linear;
  const model::Along along = wanted_[made_.size()].parameter.split.along;
  const bool is_part = group_ != nullptr && along == model::Along::kColumns;
  if (group_ != nullptr && along == model::Along::kRows) linear.overlap = &group_->overlap();
  linear.weight = Make(name + ".weight", Use::kInProduct);
  if (!linear.weight.defined()) return linear;
  linear.cast_weight = Cast(linear.weight);
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
    Adapter& adapter = linear.adapter;
    adapter.a = Make(name + ".lora_A.weight", Use::kInProduct);
    adapter.b = Make(name + ".lora_B.weight", Use::kInProduct);
    adapter.cast_a = Cast(adapter.a);
    adapter.cast_b = Cast(adapter.b);
    adapter.scale = adapter_scale_;
  }
  return linear;
}

int64_t LayerMaker::RowsInHead(int64_t rows) const {
  // Of bf16: 16 bytes.
  constexpr int64_t kAlignment = 8;
  const bool aligned = device_.is_cuda() && compute_type_ == at::kBFloat16;
  return aligned ? (rows + kAlignment - 1) / kAlignment * kAlignment : rows;
}

at::Tensor LayerMaker::Stack(std::vector<Linear>& linears) {
  constexpr int64_t kAlignment = 8;  // of bf16: 16 bytes
  if (linears.empty() || !device_.is_cuda() || compute_type_ != at::kBFloat16) return {};
  const at::Tensor& first = linears.front().weight;
  const bool aligned = first.size(0) % kAlignment == 0 && first.size(1) % kAlignment == 0;
  if (!aligned || !first.requires_grad()) return {};
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(linears.size()));
  const at::Tensor stack =
      at::empty(sizes, first.options().dtype(compute_type_).requires_grad(false));
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

RmsNorm LayerMaker::MakeRmsNorm(const std::string& name, double epsilon) {
  return {Make(name + ".weight", Use::kInFp32), epsilon};
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
    if (!wanted_[i].parameter.is_published()) continue;
    if (!made_[i].defined()) {  // other ranks'; all ranks read all the same
      LH_RETURN_IF_ERROR(read(wanted_[i], {}));
      continue;
    }
    const at::Tensor values = at::empty(SizesOf(i));
    LH_RETURN_IF_ERROR(
        read(wanted_[i], std::span(values.data_ptr<float>(), static_cast<size_t>(values.numel()))));
    made_[i].detach().copy_(values);
  }
  RefreshCasts();
  return absl::OkStatus();
}

uint64_t LayerMaker::frozen_bytes() const {
  uint64_t bytes = 0;
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
