// Packed documents that attend within themselves are computed as if each were alone.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "worker/stage/model/model.h"

namespace longhaul::worker {
namespace {

// Sums over other shapes round otherwise.
constexpr double kRounding = 2e-6;

StageOptions TwoBlocks(ModelFamily family) {
  StageOptions options;
  options.model.family = family;
  options.model.layers = options.layers = 2;
  options.model.hidden = 32;
  options.model.heads = 4;
  options.model.context = 24;
  if (family != ModelFamily::kGpt) {
    options.model.kv_heads = 2;
    options.model.intermediate = 48;
    options.model.experts = 4;
    options.model.experts_per_token = 2;
    options.model.expert_intermediate = 24;
    // The balance loss counts tokens of a whole row, whatever documents are in it.
    options.model.balance = Balance::kNone;
    options.model.norm_epsilon = 1e-6;
  }
  options.vocabulary = 50;
  return options;
}

// (1, count) ids.
at::Tensor Ids(int64_t first, int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back((first + 7 * i + i * i) % 50);
  return at::tensor(ids).view({1, count});
}

// Document numbers of the packed row, given the lengths of its documents.
at::Tensor Documents(const std::vector<int64_t>& lengths) {
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < lengths.size(); ++i) {
    parts.push_back(at::full({1, lengths[i]}, static_cast<int64_t>(i), at::kLong));
  }
  return at::cat(parts, 1);
}

class DocumentsOf : public ::testing::TestWithParam<ModelFamily> {
 protected:
  const std::vector<int64_t> lengths_ = {9, 1, 14};
  const StageOptions options_ = TwoBlocks(GetParam());
  // Each in the model alone, and all in one row.
  std::vector<at::Tensor> Apart() const {
    std::vector<at::Tensor> rows;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      rows.push_back(Ids(static_cast<int64_t>(11 * i), lengths_[i]));
    }
    return rows;
  }
};
INSTANTIATE_TEST_SUITE_P(Families, DocumentsOf,
                         ::testing::Values(ModelFamily::kGpt, ModelFamily::kLlama,
                                           ModelFamily::kMoe),
                         [](const auto& test) { return std::string(ToString(test.param)); });

TEST_P(DocumentsOf, HaveTheLogitsThatTheyHaveAlone) {
  const auto model = Model::Create(options_);
  const at::Tensor row = at::cat(Apart(), 1);
  const at::Tensor packed = model->Forward(row, Documents(lengths_)).detach();
  const at::Tensor mixed = model->Forward(row).detach();
  int64_t begin = 0;
  for (const at::Tensor& ids : Apart()) {
    const at::Tensor alone = model->Forward(ids).detach();
    const auto differs = [&](const at::Tensor& other) {
      return (other.narrow(1, begin, ids.size(1)) - alone).abs().max().item<double>();
    };
    EXPECT_LT(differs(packed), kRounding);
    // Without the mask the later ones see those before them.
    if (begin > 0) {
      EXPECT_GT(differs(mixed), 100 * kRounding);
    }
    begin += ids.size(1);
  }
}

TEST_P(DocumentsOf, HaveTheGradientsThatTheyHaveAlone) {
  // The sum of the losses of all targets within documents.
  const auto gradients = [&](bool apart) {
    const auto model = Model::Create(options_);
    const auto loss = [&](const at::Tensor& ids, const std::vector<int64_t>& lengths) {
      at::Tensor targets = at::full_like(ids, kNoTarget);
      int64_t begin = 0;
      for (const int64_t length : lengths) {
        targets.narrow(1, begin, length - 1).copy_(ids.narrow(1, begin + 1, length - 1));
        begin += length;
      }
      const at::Tensor one = at::full({}, 1.0f);
      return model->Loss(model->Forward(ids, apart ? at::Tensor() : Documents(lengths)), targets,
                         one);
    };
    if (apart) {
      for (const at::Tensor& ids : Apart()) {
        if (ids.size(1) > 1) loss(ids, {ids.size(1)}).backward();
      }
    } else {
      loss(at::cat(Apart(), 1), lengths_).backward();
    }
    std::map<std::string, at::Tensor> values;
    for (const Parameter& parameter : model->parameters()) {
      values[parameter.name] = parameter.value.grad().clone();
    }
    return values;
  };
  const auto alone = gradients(true), packed = gradients(false);
  for (const auto& [name, gradient] : alone) {
    const double largest = gradient.abs().max().item<double>();
    EXPECT_GT(largest, 0) << name;
    EXPECT_LT((packed.at(name) - gradient).abs().max().item<double>(),
              50 * kRounding * std::max(1.0, largest))
        << name;
  }
}

}  // namespace
}  // namespace longhaul::worker
