#include "codec/cuda/device_tables.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "codec/cuda/device_codec.h"
#include "codec/predict/context.h"
#include "codec/predict/cuda/kernels.h"

namespace longhaul::codec::cuda {
namespace {

using longhaul::cuda::DeviceBuffer;
using longhaul::cuda::Event;
using longhaul::cuda::PinnedBuffer;
using longhaul::cuda::Stream;

constexpr absl::Duration kLongestCopy = absl::Seconds(60);
constexpr size_t kZeros = size_t{4} << 20;

Status AwaitAll(Stream* stream) {
  LH_ASSIGN_OR_RETURN(Event done, Event::Create(stream->device()));
  LH_RETURN_IF_ERROR(done.Record(*stream));
  return done.Await(Deadline::After(kLongestCopy));
}

}  // namespace

TablesOnDevice::TablesOnDevice(const DeviceTables* tables) {
  if (tables == nullptr) return;
  shape = tables->shape();
  ids = tables->ids();
  learns = tables->learns();
  memory_dev = tables->memory_dev();
  state_dev = tables->state_dev();
  ids_dev = tables->ids_dev();
}

uint64_t DeviceTables::Bytes(const predict::TablesShape& shape, uint64_t tokens) {
  return shape.bytes() + sizeof(PredictState) + tokens * sizeof(uint32_t);
}

StatusOr<DeviceTables> DeviceTables::Create(Stream* stream, const predict::TablesShape& shape,
                                            uint64_t tokens) {
  const longhaul::cuda::Device& device = stream->device();
  const size_t ids_bytes = std::max<uint64_t>(tokens, 1) * sizeof(uint32_t);
  LH_ASSIGN_OR_RETURN(DeviceBuffer memory, DeviceBuffer::Create(device, shape.bytes()));
  LH_ASSIGN_OR_RETURN(DeviceBuffer state, DeviceBuffer::Create(device, sizeof(PredictState)));
  LH_ASSIGN_OR_RETURN(DeviceBuffer ids_on_device, DeviceBuffer::Create(device, ids_bytes));
  LH_ASSIGN_OR_RETURN(PinnedBuffer ids_on_host, PinnedBuffer::Create(device, ids_bytes));
  LH_ASSIGN_OR_RETURN(PinnedBuffer zeros,
                      PinnedBuffer::Create(device, std::min<size_t>(kZeros, shape.bytes())));
  std::memset(zeros.span().data(), 0, zeros.span().size());
  for (uint64_t at = 0; at < shape.bytes(); at += zeros.span().size()) {
    LH_RETURN_IF_ERROR(stream->Copy(static_cast<std::byte*>(memory.data_dev()) + at,
                                    zeros.span().data(),
                                    std::min<uint64_t>(zeros.span().size(), shape.bytes() - at)));
  }
  LH_RETURN_IF_ERROR(AwaitAll(stream));  // of the zeros
  DeviceTables tables(shape, std::move(memory), std::move(state), std::move(ids_on_device),
                      std::move(ids_on_host));
  LH_RETURN_IF_ERROR(
      tables.SetCheck(predict::FirstCheck(shape.vocabulary, shape.channels), stream));
  return tables;
}

Status DeviceTables::SetCheck(uint64_t check, Stream* stream) {
  PredictState state{};
  state.check = check;
  LH_RETURN_IF_ERROR(stream->Copy(state_.data_dev(), &state, sizeof(state)));
  return AwaitAll(stream);
}

Status DeviceTables::CheckRoom(uint64_t tokens) const {
  const uint64_t most = ids_on_host_.span().size() / sizeof(uint32_t);
  if (tokens <= most) return absl::OkStatus();
  return InvalidArgument("expected the ids of at most {} tokens, got {}", most, tokens);
}

Status DeviceTables::Load(const Context& context, Stream* stream) {
  const std::span<const uint32_t> ids = context.token_ids;
  LH_RETURN_IF_ERROR(CheckRoom(ids.size()));
  LH_RETURN_IF_ERROR(predict::CheckIds(ids, shape_.vocabulary));
  ids_ = ids.size();
  learns_ = context.learns;
  if (ids.empty()) return absl::OkStatus();
  std::memcpy(ids_on_host_.span().data(), ids.data(), ids.size_bytes());
  return stream->Copy(ids_on_device_.data_dev(), ids_on_host_.span().data(), ids.size_bytes());
}

Status DeviceTables::LoadFromDevice(const uint32_t* ids_dev, uint64_t tokens, bool learns,
                                    Stream* stream) {
  LH_RETURN_IF_ERROR(CheckRoom(tokens));
  ids_ = tokens;
  learns_ = learns;
  return stream->Copy(ids_on_device_.data_dev(), ids_dev, tokens * sizeof(uint32_t));
}

Status DeviceTables::Restore(const predict::Tables& tables, Stream* stream) {
  if (tables.shape() != shape_) {
    return absl::InvalidArgumentError("expected tables of the same shape to restore");
  }
  LH_RETURN_IF_ERROR(stream->Copy(memory_dev(), tables.memory().data(), shape_.bytes()));
  return SetCheck(tables.check(), stream);
}

StatusOr<uint64_t> DeviceTables::Check(Stream* stream) const {
  PredictState state;
  LH_RETURN_IF_ERROR(stream->Copy(&state, state_.data_dev(), sizeof(state)));
  LH_RETURN_IF_ERROR(AwaitAll(stream));
  uint32_t sum = 0;
  for (const uint32_t part : state.sums) sum += part;
  return state.learned == 0 ? state.check : predict::NextCheck(state.check, sum);
}

Status DeviceTables::Save(Stream* stream, predict::Tables* tables) const {
  if (tables->shape() != shape_) {
    return absl::InvalidArgumentError("expected tables of the same shape to save to");
  }
  LH_RETURN_IF_ERROR(stream->Copy(tables->memory().data(), memory_dev(), shape_.bytes()));
  LH_ASSIGN_OR_RETURN(const uint64_t check, Check(stream));
  tables->set_check(check);
  return absl::OkStatus();
}

}  // namespace longhaul::codec::cuda
