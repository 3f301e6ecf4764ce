#include "worker/stage/replicas/tied_parameter.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include "base/check.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/device/torch_scope.h"

namespace longhaul::worker {
namespace {

// Some rows of a gradient. Rows that follow each other are a view of it.
class GradientRows {
 public:
  GradientRows(const at::Tensor& gradient, std::span<const int32_t> rows) : gradient_(gradient) {
    const auto count = static_cast<int64_t>(rows.size());
    if (rows.back() - rows.front() + 1 == count) {
      values_ = gradient.narrow(0, rows.front(), count);
      return;
    }
    places_ = at::from_blob(const_cast<int32_t*>(rows.data()), {count}, at::kInt)
                  .to(gradient.device(), at::kLong);
    values_ = gradient.index_select(0, places_);
  }
  const at::Tensor& values() const { return values_; }
  // After values() have changed.
  void WriteBack() const {
    if (places_.defined()) gradient_.index_copy_(0, places_, values_);
  }

 private:
  const at::Tensor gradient_;
  at::Tensor values_, places_;
};

class TiedParameter final : public TiedMatrix {
 public:
  TiedParameter(const Parameter& parameter, bool head, uint32_t threads)
      : parameter_(parameter), head_(head), threads_(threads) {}

  const std::string& name() const override { return parameter_.name; }
  uint32_t rows() const override { return static_cast<uint32_t>(parameter_.value.size(0)); }
  uint32_t channels() const override { return static_cast<uint32_t>(parameter_.value.size(1)); }

  Status ReadGradient(std::span<const int32_t> rows, std::span<float> values) override {
    return WithRows(rows, values, [&](const GradientRows& some, const at::Tensor& host) {
      if (head_) {
        some.values().add_(0);
        some.WriteBack();
      }
      host.copy_(some.values());
    });
  }

  Status AddToGradient(std::span<const int32_t> rows, std::span<const float> values) override {
    // LibTorch has no tensors of constants.
    const std::span<float> source(const_cast<float*>(values.data()), values.size());
    return WithRows(rows, source, [](const GradientRows& some, const at::Tensor& host) {
      some.values().add_(host.to(some.values().device()));
      some.WriteBack();
    });
  }

 private:
  template <class Body>
  Status WithRows(std::span<const int32_t> rows, std::span<float> values, const Body& body) {
    return CallTorch("the tied matrix's gradient", threads_, [&]() -> Status {
      const at::NoGradGuard no_grad;
      LH_CHECK(!rows.empty() && values.size() == rows.size() * channels(),
               "{} numbers of {} rows of {}", values.size(), rows.size(), channels());
      const at::Tensor& gradient = parameter_.value.grad();
      if (!gradient.defined()) {
        return FailedPrecondition("{} has no gradient before the first backward", name());
      }
      body(GradientRows(gradient, rows),
           at::from_blob(values.data(), {static_cast<int64_t>(rows.size()), channels()}));
      AwaitTorch(gradient.device());
      return absl::OkStatus();
    });
  }

  const Parameter& parameter_;
  const bool head_;
  const uint32_t threads_;
};

}  // namespace

std::unique_ptr<TiedMatrix> TiedMatrixOf(const StageOptions& options,
                                         const std::vector<Parameter>& parameters) {
  if (options.first == options.last) return nullptr;
  for (const Parameter& parameter : parameters) {
    if (!parameter.tied) continue;
    return std::make_unique<TiedParameter>(parameter, options.last, options.threads);
  }
  return nullptr;
}

}  // namespace longhaul::worker
