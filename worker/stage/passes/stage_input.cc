#include "worker/stage/passes/stage_input.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>

#include "run/boundary/boundary_shape.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/model/dropout.h"
#include "worker/stage/passes/boundary_tensors.h"

namespace longhaul::worker {
namespace {

// Documents of all rows of `context` tokens together.
int64_t CountDocuments(std::span<const int32_t> documents, size_t context) {
  int64_t count = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    if (i % context == 0 || documents[i] != documents[i - 1]) ++count;
  }
  return count;
}

}  // namespace

StatusOr<at::Tensor> StageInputReader::ReadIds(std::string_view what, std::span<const int32_t> ids,
                                               int32_t least, uint32_t end) const {
  const int64_t rows = options_->train.microbatch_size, context = options_->model.context;
  if (ids.size() != static_cast<size_t>(rows * context)) {
    return InvalidArgument("expected {} x {} {}; came {}", rows, context, what, ids.size());
  }
  for (const int32_t id : ids) {
    if (id < least || id >= static_cast<int64_t>(end)) {
      return InvalidArgument("expected {} below the vocabulary of {}; came {}", what, end, id);
    }
  }
  return at::from_blob(const_cast<int32_t*>(ids.data()), {rows, context}, at::kInt);
}

StatusOr<at::Tensor> StageInputReader::ReadBoundary(std::string_view what,
                                                    const codec::TensorView& view,
                                                    Direction direction) const {
  const codec::Shape expected =
      SliceShape(options_->model, options_->train, options_->group, options_->slices, direction);
  // A group's boundary is where its first rank is.
  const at::Device from = options_->ranks.empty() ? device_ : TorchDevice(options_->ranks.front());
  if (!(view.shape == expected) || view.data == nullptr) {
    return InvalidArgument("expected {} of shape ({}, {}, {}); came ({}, {}, {}){}", what,
                           expected.samples, expected.tokens, expected.channels, view.shape.samples,
                           view.shape.tokens, view.shape.channels,
                           view.data == nullptr ? " without data" : "");
  }
  return at::for_blob(const_cast<void*>(view.data),
                      {expected.samples, expected.tokens, expected.channels})
      .options(at::TensorOptions(ToTorch(view.dtype)).device(from))
      .target_device(from)
      .make_tensor();
}

StatusOr<PassInput> StageInputReader::Read(Slice slice, const Stage::Input& input,
                                           bool training) const {
  const int64_t tokens = options_->slice_tokens(), first = slice.index * tokens;
  PassInput read;
  if (options_->first) {
    LH_ASSIGN_OR_RETURN(const at::Tensor ids,
                        ReadIds("input ids", input.tokens, 0, options_->vocabulary));
    read.source = ids.narrow(1, first, tokens);
  } else {
    LH_ASSIGN_OR_RETURN(read.source,
                        ReadBoundary("an activation", input.activation, Direction::kForward));
    if (options_->train.dpo) {
      const int64_t rows = options_->train.microbatch_size;
      read.reference = read.source.narrow(0, rows, rows);
      read.source = read.source.narrow(0, 0, rows);
    }
  }
  if (options_->last) {
    LH_ASSIGN_OR_RETURN(const at::Tensor ids,
                        ReadIds("target ids", input.targets,
                                options_->masked_targets ? kNoTarget : 0, options_->vocabulary));
    read.targets = ids.narrow(1, first, tokens);
  }
  if (options_->last && options_->masked_targets) {
    if (!(input.counted > 0)) {
      return InvalidArgument("expected a number of targets that count; came {}", input.counted);
    }
    read.counted = at::scalar_tensor(input.counted, at::kFloat);
  }
  if (options_->masked_attention) {
    LH_ASSIGN_OR_RETURN(read.documents, ReadIds("numbers of documents", input.documents, 0,
                                                options_->model.context));
    read.most_documents = CountDocuments(input.documents, options_->model.context);
  }
  if (training && options_->model.lora && options_->model.lora->dropout > 0) {
    read.random = at::scalar_tensor(Dropout::RandomOf(input.random, slice.index), at::kLong);
  }
  return read;
}

}  // namespace longhaul::worker
