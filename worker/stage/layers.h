// What the networks of all families are made of: parameters with their initial values, and the
// layers that hold them.
//
// Internal to worker/stage (it shows LibTorch). Threads: one at a time. Errors: LibTorch's
// exceptions.
#ifndef LONGHAUL_WORKER_STAGE_LAYERS_H_
#define LONGHAUL_WORKER_STAGE_LAYERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace longhaul::worker {

struct Parameter {
  std::string name;  // global
  at::Tensor value;  // fp32 leaf that requires a gradient
};

struct Linear {
  at::Tensor weight, bias;  // (outputs, inputs); bias undefined where there is none
  at::Tensor operator()(const at::Tensor& x) const;
};

struct LayerNorm {
  at::Tensor weight, bias;
  at::Tensor operator()(const at::Tensor& x) const;
};

// Over the root of the mean square; computed in the type of `x`, which the residual stream keeps in
// fp32.
struct RmsNorm {
  at::Tensor weight;
  double epsilon = 0;
  at::Tensor operator()(const at::Tensor& x) const;
};

// Makes layers and collects their parameters in the order of making, which is the model's. Values
// depend on (seed, name) alone, whatever the device: matrices are normal, biases 0, norms 1.
class LayerMaker {
 public:
  LayerMaker(uint64_t seed, const at::Device& device) : seed_(seed), device_(device) {}

  at::Tensor Matrix(std::string name, int64_t rows, int64_t columns, double deviation);
  // "<name>.weight" and, with `bias`, "<name>.bias".
  Linear MakeLinear(const std::string& name, int64_t outputs, int64_t inputs, double deviation,
                    bool bias);
  LayerNorm MakeLayerNorm(const std::string& name, int64_t channels);
  RmsNorm MakeRmsNorm(const std::string& name, int64_t channels, double epsilon);

  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  at::Tensor Add(std::string name, at::Tensor value);
  const uint64_t seed_;
  const at::Device device_;
  std::vector<Parameter> parameters_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_LAYERS_H_
