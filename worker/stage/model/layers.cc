#include "worker/stage/model/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <utility>
#include <vector>

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

// From this many elements on a product is added to the gradient directly: a temporary would be too
// large, as that of the head with a large vocabulary, for each chunk of tokens.
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
    const at::Tensor input = x.to(layer->type());
    if (layer->weight.requires_grad()) context->save_for_backward({input});
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    context->saved_data["type"] = x.scalar_type();
    const at::Tensor weight = layer->Operand();
    if (layer->first_biased == 0) return at::linear(input, weight, layer->cast_bias);
    at::Tensor output = at::linear(input, weight);
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
    const at::Tensor weight = layer->Operand();
    return {rows.mm(weight)
                .view(WithLast(gradients[0], weight.size(1)))
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
    const Dropout::Draw* const draw =
        adapter.dropout == nullptr ? nullptr : adapter.dropout->current();
    const at::Tensor input = Rows(x).to(layer->type());
    at::Tensor seen = input;
    if (draw != nullptr) {
      seen = input.clone();
      draw->Drop(adapter.channels, seen);
    }
    const at::Tensor low = seen.mm(adapter.cast_a.t()).mul_(adapter.scale);
    if (draw == nullptr) {
      context->save_for_backward({input, low});
    } else {
      low.mul_(draw->factor);
      context->save_for_backward({input, low, draw->rows, draw->least, draw->factor});
    }
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    context->saved_data["type"] = x.scalar_type();
    const at::Tensor weight = layer->Operand();
    return at::linear(input, weight, layer->cast_bias)
        .addmm_(low, adapter.cast_b.t())
        .view(WithLast(x, weight.size(0)));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const layer = reinterpret_cast<const Linear*>(  // NOLINT(performance-no-int-to-ptr)
        context->saved_data["layer"].toInt());
    const Adapter& adapter = layer->adapter;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &low = saved[1];
    const bool drops = saved.size() > 2, gives_gradient = context->needs_input_grad(0);
    const at::Tensor rows = Rows(gradients[0]);
    const at::Tensor of_low = rows.mm(adapter.cast_b).mul_(adapter.scale);
    at::Tensor seen = input, of_seen;
    if (drops) {
      const Dropout::Draw draw{.rows = saved[2], .least = saved[3], .factor = saved[4]};
      of_low.mul_(draw.factor);
      seen = input.clone();
      if (gives_gradient) {
        of_seen = of_low.mm(adapter.cast_a);
        draw.Drop(adapter.channels, {seen, of_seen});
      } else {
        draw.Drop(adapter.channels, seen);
      }
    }
    AddProductToGradient(adapter.b, rows.t(), low);
    AddProductToGradient(adapter.a, of_low.t(), seen);
    if (!gives_gradient) return {Variable(), Variable(), Variable()};
    const at::Tensor weight = layer->Operand();
    at::Tensor of_input = rows.mm(weight);
    if (drops) {
      of_input.add_(of_seen);
    } else {
      of_input.addmm_(of_low, adapter.cast_a);
    }
    return {of_input.view(WithLast(gradients[0], weight.size(1)))
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
  const bool adapts = adapter.b.defined() && (adapter.state == nullptr || adapter.state->on());
  if (adapts) return AdaptedProduct::apply(x, adapter.b, this);
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

at::Tensor RmsNorm::Factor() const {
  return from_one ? weight + 1 : weight;
}

at::Tensor RmsNorm::operator()(const at::Tensor& x) const {
  if (!weight.defined()) return x;
  return at::rms_norm(x, weight.sizes(), Factor(), epsilon);
}

}  // namespace longhaul::worker
