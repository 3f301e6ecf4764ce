// torch.classes.longhaul.PredictLink: both ends of an emulated link between two stages, for models
// that are trained in one process. The link's codec, predict, predicts a tensor from the ids of the
// tokens, by tables that the codec learns. The sending and the receiving end have tables each.
//
//   link = torch.classes.longhaul.PredictLink("predict/gauss", 50257, [1, 1024, 768], "cuda:0")
//   y = link.transfer(x, ids, True)  # x: microbatches one after the other; ids: on the CPU
//   link.check()                     # now and then: waits for the GPU, throws if decoding failed
//
// Threads: one at a time. Errors: thrown, as in tensors.h. transfer waits for a GPU only if the
// codec's blobs (encoded tensors) have no fixed size.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/cuda/cuda_codec.h"
#include "codec/cuda/device_tables.h"
#include "codec/predict/tables.h"

namespace longhaul::ops {

class PredictLink : public torch::CustomClassHolder {
 public:
  // `codec`: a codec string of predict, as in run files. `vocabulary`: the number of token ids.
  // `shape`: samples, tokens and channels of a message, which is a microbatch. `device`: "cpu" or
  // "cuda:N".
  PredictLink(const std::string& codec, int64_t vocabulary, const std::vector<int64_t>& shape,
              const std::string& device);

  // Sends `x` and returns the tensor that the other end decodes, in the dtype of `x`. `x` has
  // messages one after the other: (messages * samples, tokens, channels). `ids` are the token ids,
  // (messages * samples, tokens), on the CPU. Each message is predicted from earlier ones. If
  // `learns` is true, the tables of both ends learn from each message.
  at::Tensor Transfer(const at::Tensor& x, const at::Tensor& ids, bool learns);
  // Waits for the GPU. Throws if the receiving end has refused a blob since the link was made. Does
  // nothing on the CPU, where Transfer itself throws.
  void Check() const;
  // Returns the bytes of the largest encoded message. If the codec has a fixed size, all messages
  // have this size.
  int64_t EncodedBytes() const;

 private:
  void TransferOnHost(const at::Tensor& x, const at::Tensor& ids, bool learns,
                      const at::Tensor& out);
  void TransferOnDevice(const at::Tensor& x, const at::Tensor& ids, bool learns,
                        const at::Tensor& out);

  const std::shared_ptr<const codec::cuda::CudaCodec> codec_;
  const codec::Shape shape_;
  const uint32_t vocabulary_;
  const c10::Device device_;
  bool fixed_size_ = false;  // of the codec of the differences
  at::Tensor workspace_, blob_, fault_;
  std::optional<codec::predict::Tables> sender_, receiver_;                   // on the CPU
  std::optional<codec::cuda::DeviceTables> sender_on_gpu_, receiver_on_gpu_;  // on a GPU
};

}  // namespace longhaul::ops
