#include "codec/cuda/message_staging.h"

#include <cstring>
#include <utility>

#include "codec/aqsgd/format.h"
#include "codec/aqsgd/records.h"
#include "codec/arguments.h"

namespace longhaul::codec::cuda {

StatusOr<MessageStaging::Buffers> MessageStaging::MakeBuffers(const longhaul::cuda::Device& device,
                                                              size_t bytes) {
  LH_ASSIGN_OR_RETURN(auto host, longhaul::cuda::PinnedBuffer::Create(device, bytes));
  LH_ASSIGN_OR_RETURN(auto memory, longhaul::cuda::DeviceBuffer::Create(device, bytes));
  return Buffers{std::move(host), std::move(memory)};
}

StatusOr<MessageStaging> MessageStaging::Create(const longhaul::cuda::Device& device,
                                                const CudaCodec& codec, const Shape& shape) {
  LH_RETURN_IF_ERROR(CheckShape(shape));
  const size_t record_bytes = codec.cpu().MessageBytes(shape);
  if (record_bytes == 0) {
    return FailedPrecondition(
        "expected a codec that remembers samples and a tensor with elements, got {} "
        "and {} x {} x {}",
        codec.cpu().name(), shape.samples, shape.tokens, shape.channels);
  }
  LH_ASSIGN_OR_RETURN(Buffers entries, MakeBuffers(device, shape.samples * sizeof(aqsgd::Entry)));
  LH_ASSIGN_OR_RETURN(Buffers records, MakeBuffers(device, shape.samples * record_bytes));
  return MessageStaging(shape, codec.cpu().kind(), record_bytes, std::move(entries),
                        std::move(records));
}

std::span<aqsgd::Entry> MessageStaging::entries() {
  return {reinterpret_cast<aqsgd::Entry*>(entries_.host.span().data()), shape_.samples};
}
std::span<const aqsgd::Entry> MessageStaging::entries() const {
  return {reinterpret_cast<const aqsgd::Entry*>(entries_.host.span().data()), shape_.samples};
}

Status MessageStaging::Load(const Context& context, longhaul::cuda::Stream* stream) {
  const aqsgd::Messages messages(context);
  LH_RETURN_IF_ERROR(messages.Check(shape_));
  remembers_ = messages.remembers();
  if (!remembers_) return absl::OkStatus();
  for (uint64_t index = 0; index < shape_.samples; ++index) {
    entries()[index] = messages.EntryOf(index);
    const std::span<const std::byte> record = messages.Read(index);
    if (record.empty()) continue;
    const size_t at = index * record_bytes_;
    std::memcpy(records_.host.span().data() + at, record.data(), record_bytes_);
    LH_RETURN_IF_ERROR(stream->Copy(static_cast<std::byte*>(records_.device.data_dev()) + at,
                                    records_.host.span().data() + at, record_bytes_));
  }
  return stream->Copy(entries_.device.data_dev(), entries_.host.span().data(),
                      entries_.host.span().size());
}

DeviceMessages MessageStaging::messages() {
  if (!remembers_) return {};
  return {.entries = {entries_.device.data_dev(), entries_.device.size()},
          .records = {records_.device.data_dev(), records_.device.size()}};
}

Status MessageStaging::Check(std::span<const std::byte> blob) const {
  LH_ASSIGN_OR_RETURN(const BlobHeader header, ParseBlobHeader(blob));
  LH_ASSIGN_OR_RETURN(const aqsgd::Params params, aqsgd::FromHeader(kind_.parameters));
  LH_RETURN_IF_ERROR(
      CheckBlob(header, kind_.id, kind_.parameters, aqsgd::CodecString(params), shape_));
  const std::span<const std::byte> payload = blob.subspan(kBlobHeaderBytes);
  LH_RETURN_IF_ERROR(aqsgd::CheckSize(payload, payload.size(), shape_, params).status());
  const aqsgd::Layout layout = aqsgd::MakeLayout(shape_, params);
  for (uint64_t index = 0; index < shape_.samples; ++index) {
    const aqsgd::Entry mine = remembers_ ? entries()[index] : aqsgd::Entry{};
    LH_RETURN_IF_ERROR(aqsgd::CheckSample(payload, index, mine, remembers_, layout));
  }
  return absl::OkStatus();
}

Status MessageStaging::Fetch(longhaul::cuda::Stream* stream) {
  if (!remembers_) return absl::OkStatus();
  return stream->Copy(records_.host.span().data(), records_.device.data_dev(),
                      records_.host.span().size());
}

Status MessageStaging::Remember(const Context& context, std::span<const std::byte> blob) {
  LH_RETURN_IF_ERROR(Check(blob));
  if (!remembers_) return absl::OkStatus();
  LH_ASSIGN_OR_RETURN(const aqsgd::Params params, aqsgd::FromHeader(kind_.parameters));
  const aqsgd::Layout layout = aqsgd::MakeLayout(shape_, params);
  const aqsgd::Messages messages(context);
  for (uint64_t index = 0; index < shape_.samples; ++index) {
    if (aqsgd::KindIn(blob.subspan(kBlobHeaderBytes), layout, index) == aqsgd::Kind::kTransient) {
      continue;
    }
    LH_ASSIGN_OR_RETURN(std::byte* const record, messages.Write(index));
    if (record == nullptr) continue;
    std::memcpy(record, records_.host.span().data() + index * record_bytes_, record_bytes_);
  }
  return absl::OkStatus();
}

}  // namespace longhaul::codec::cuda
