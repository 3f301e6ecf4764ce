#include "worker/pipeline/cuda_boundary_codec.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "codec/blob.h"
#include "codec/cuda/cuda_codec.h"
#include "codec/cuda/device_tables.h"
#include "codec/cuda/kernel_args.h"
#include "codec/cuda/message_staging.h"
#include "worker/pipeline/buffer_pool.h"
#include "worker/pipeline/hosted_boundary_codec.h"

namespace longhaul::worker {
namespace {

using codec::cuda::CudaCodec;
using codec::cuda::DeviceSpan;
using codec::cuda::DeviceTables;
using codec::cuda::MessageStaging;
using cuda::DeviceBuffer;
using cuda::Event;
using cuda::PinnedBuffer;
using cuda::Stream;

// One tensor takes microseconds; a device that has not done it by then will not.
constexpr absl::Duration kPatience = absl::Seconds(60);

StatusOr<std::optional<MessageStaging>> StagingOf(const cuda::Device& device,
                                                  const CudaCodec& codec,
                                                  const codec::Shape& shape) {
  if (codec.cpu().MessageBytes(shape) == 0) return std::nullopt;
  LH_ASSIGN_OR_RETURN(MessageStaging staging, MessageStaging::Create(device, codec, shape));
  return std::optional(std::move(staging));
}

// Nothing for a codec that does not predict.
StatusOr<std::optional<DeviceTables>> TablesOf(Stream* stream, const CudaCodec& codec,
                                               const codec::Shape& shape, uint32_t vocabulary) {
  if (codec.cpu().TableRows(vocabulary) == 0) return std::nullopt;
  LH_ASSIGN_OR_RETURN(
      DeviceTables tables,
      DeviceTables::Create(stream,
                           codec::predict::TablesShapeFor(codec.cpu(), vocabulary, shape.channels),
                           uint64_t{shape.samples} * shape.tokens));
  return std::optional(std::move(tables));
}

// What one device holds for a boundary, whatever codecs work in it. Tensors have room for a blob of
// theirs in fp32.
struct BoundaryMemory {
  static StatusOr<std::shared_ptr<BoundaryMemory>> Create(const cuda::Device& device,
                                                          const BoundaryCodecOptions& options,
                                                          size_t blob_bytes,
                                                          size_t workspace_bytes);

  const cuda::Device device;
  const codec::Shape sent, received;
  const size_t tensor_bytes;
  const size_t room_bytes;  // as BoundaryCodecOptions has it
  Stream stream;
  Event done;
  DeviceBuffer workspace, blob;
  DeviceBuffer fault_dev;  // a word that a decoder sets
  PinnedBuffer words;      // its value, and zero
  BufferPool<PinnedBuffer> blobs;
  BufferPool<DeviceBuffer> tensors;
};

StatusOr<std::shared_ptr<BoundaryMemory>> BoundaryMemory::Create(
    const cuda::Device& device, const BoundaryCodecOptions& options, size_t blob_bytes,
    size_t workspace_bytes) {
  const codec::Shape sent = options.shape, received = options.received_shape();
  const size_t room_bytes = options.room_bytes;
  const size_t tensor_bytes =
      std::max(sent.elements(), received.elements()) * sizeof(float) + codec::kBlobHeaderBytes;
  LH_ASSIGN_OR_RETURN(Stream stream, Stream::Create(device));
  LH_ASSIGN_OR_RETURN(Event done, Event::Create(device));
  LH_ASSIGN_OR_RETURN(DeviceBuffer workspace, DeviceBuffer::Create(device, workspace_bytes));
  LH_ASSIGN_OR_RETURN(DeviceBuffer blob, DeviceBuffer::Create(device, blob_bytes));
  LH_ASSIGN_OR_RETURN(DeviceBuffer fault_dev, DeviceBuffer::Create(device, sizeof(uint32_t)));
  LH_ASSIGN_OR_RETURN(PinnedBuffer words, PinnedBuffer::Create(device, 2 * sizeof(uint32_t)));
  std::memset(words.span().data(), 0, words.span().size());
  return std::shared_ptr<BoundaryMemory>(new BoundaryMemory{
      device, sent, received, tensor_bytes, room_bytes, std::move(stream), std::move(done),
      std::move(workspace), std::move(blob), std::move(fault_dev), std::move(words),
      BufferPool<PinnedBuffer>([device, bytes = blob_bytes + room_bytes] {
        return PinnedBuffer::Create(device, bytes);
      }),
      BufferPool<DeviceBuffer>(
          [device, tensor_bytes] { return DeviceBuffer::Create(device, tensor_bytes); })});
}

class CudaBoundaryCodec final : public BoundaryCodec {
 public:
  // In some memory.
  struct Parts {
    CudaCodec send, receive;
    std::optional<MessageStaging> send_staging, receive_staging;
    std::optional<DeviceTables> send_tables = {}, receive_tables = {};
  };
  // Without tables.
  static StatusOr<Parts> PartsOf(const cuda::Device& device, const BoundaryCodecOptions& options) {
    LH_ASSIGN_OR_RETURN(CudaCodec send, CudaCodec::Create(options.send));
    LH_ASSIGN_OR_RETURN(CudaCodec receive, CudaCodec::Create(options.receive));
    LH_ASSIGN_OR_RETURN(auto send_staging, StagingOf(device, send, options.shape));
    LH_ASSIGN_OR_RETURN(auto receive_staging, StagingOf(device, receive, options.received_shape()));
    return Parts{std::move(send), std::move(receive), std::move(send_staging),
                 std::move(receive_staging)};
  }

  CudaBoundaryCodec(std::shared_ptr<BoundaryMemory> memory, Parts parts)
      : memory_(std::move(memory)),
        most_(std::max(parts.send.MaxEncodedBytes(memory_->sent),
                       parts.receive.MaxEncodedBytes(memory_->received))),
        parts_(std::move(parts)) {}

  // Blobs up to the size of the memory's first codecs are in pinned memory. Larger ones are rare:
  // they are not pinned, and copied more slowly.
  StatusOr<BlobBuffer> NewBlob(size_t bytes) override {
    const size_t room = memory_->room_bytes;
    if (bytes > most_ + room) {
      return InvalidArgument("expected a blob of at most {} bytes, got {}", most_ + room, bytes);
    }
    if (bytes > memory_->blob.size() + room) {
      auto memory = std::make_shared<AlignedBuffer>(bytes);
      return BlobBuffer{memory->span(), memory};
    }
    LH_ASSIGN_OR_RETURN(std::shared_ptr<PinnedBuffer> memory, memory_->blobs.Take());
    return BlobBuffer{memory->span(), memory};
  }
  codec::predict::TablesShape tables_shape() const override {
    return OwnTables() ? OwnTables()->shape() : codec::predict::TablesShape();
  }
  StatusOr<uint64_t> TablesCheck() override { return OwnTables()->Check(&memory_->stream); }
  StatusOr<codec::predict::Tables> SaveTables() override {
    const std::optional<DeviceTables>& tables = OwnTables();
    LH_ASSIGN_OR_RETURN(auto saved, codec::predict::Tables::Create(tables->shape()));
    LH_RETURN_IF_ERROR(tables->Save(&memory_->stream, &saved));
    return saved;
  }
  Status RestoreTables(const codec::predict::Tables& tables) override {
    for (std::optional<DeviceTables>* mine : {&parts_.send_tables, &parts_.receive_tables}) {
      if (*mine) LH_RETURN_IF_ERROR((*mine)->Restore(tables, &memory_->stream));
    }
    return absl::OkStatus();
  }
  StatusOr<EncodedBlob> Encode(const codec::TensorView& tensor,
                               const codec::Context& context) override {
    const codec::Shape& shape = memory_->sent;
    LH_ASSIGN_OR_RETURN(BlobBuffer buffer,
                        NewBlob(parts_.send.MaxEncodedBytes(shape) + memory_->room_bytes));
    LH_ASSIGN_OR_RETURN(const DeviceBlob blob, NewDeviceBlob());
    std::optional<MessageStaging>& staging = parts_.send_staging;
    if (staging) LH_RETURN_IF_ERROR(staging->Load(context, &memory_->stream));
    std::optional<DeviceTables>& tables = parts_.send_tables;
    if (tables) LH_RETURN_IF_ERROR(tables->Load(context, &memory_->stream));
    LH_RETURN_IF_ERROR(
        parts_.send.Encode(tensor, context, workspace(), blob.span, memory_->stream,
                           staging ? staging->messages() : codec::cuda::DeviceMessages{},
                           tables ? &*tables : nullptr));
    if (staging) LH_RETURN_IF_ERROR(staging->Fetch(&memory_->stream));
    // A blob of fixed size is copied whole. Of any other the header is copied first, which says how
    // many bytes follow.
    const bool fixed = parts_.send.cpu().fixed_size();
    const size_t most = parts_.send.MaxEncodedBytes(shape);
    LH_RETURN_IF_ERROR(memory_->stream.Copy(buffer.bytes.data(), blob.span.data_dev,
                                            fixed ? most : codec::kBlobHeaderBytes));
    LH_RETURN_IF_ERROR(Wait());
    const size_t bytes = codec::BlobBytes(buffer.bytes);
    if (bytes > most) {
      return Internal("{} wrote a header of {} bytes where {} are the most", memory_->device.Name(),
                      bytes, most);
    }
    if (!fixed && bytes > codec::kBlobHeaderBytes) {
      LH_RETURN_IF_ERROR(memory_->stream.Copy(
          buffer.bytes.data() + codec::kBlobHeaderBytes,
          static_cast<const std::byte*>(blob.span.data_dev) + codec::kBlobHeaderBytes,
          bytes - codec::kBlobHeaderBytes));
      LH_RETURN_IF_ERROR(Wait());
    }
    LH_ASSIGN_OR_RETURN(const codec::BlobHeader header,
                        codec::ParseBlobHeader(buffer.bytes.first(bytes)));
    if (staging) LH_RETURN_IF_ERROR(staging->Remember(context, buffer.bytes.first(bytes)));
    return EncodedBlob{std::move(buffer), bytes, header.nonfinite_tiles};
  }
  StatusOr<BoundaryTensor> Decode(std::span<const std::byte> blob,
                                  const codec::Context& context) override {
    if (blob.size() < codec::kBlobHeaderBytes || blob.size() > most_) {
      return InvalidArgument("expected a blob of {} to {} bytes, got {}", codec::kBlobHeaderBytes,
                             most_, blob.size());
    }
    std::optional<MessageStaging>& staging = parts_.receive_staging;
    if (staging) {
      LH_RETURN_IF_ERROR(staging->Load(context, &memory_->stream));
      LH_RETURN_IF_ERROR(staging->Check(blob));
    }
    std::optional<DeviceTables>& tables = parts_.receive_tables;
    if (tables) LH_RETURN_IF_ERROR(tables->Load(context, &memory_->stream));
    const codec::Shape& shape = memory_->received;
    LH_ASSIGN_OR_RETURN(const DeviceBlob on_device, NewDeviceBlob());
    LH_ASSIGN_OR_RETURN(std::shared_ptr<DeviceBuffer> values, memory_->tensors.Take());
    auto* const fault_dev = static_cast<uint32_t*>(memory_->fault_dev.data_dev());
    const std::span<std::byte> words = memory_->words.span();
    LH_RETURN_IF_ERROR(
        memory_->stream.Copy(fault_dev, words.data() + sizeof(uint32_t), sizeof(uint32_t)));
    LH_RETURN_IF_ERROR(memory_->stream.Copy(on_device.span.data_dev, blob.data(), blob.size()));
    LH_RETURN_IF_ERROR(parts_.receive.Decode(
        blob.first(codec::kBlobHeaderBytes), {on_device.span.data_dev, blob.size()}, workspace(),
        {values->data_dev(), codec::Dtype::kF32, shape}, fault_dev, memory_->stream,
        staging ? staging->messages() : codec::cuda::DeviceMessages{},
        tables ? &*tables : nullptr));
    if (staging) LH_RETURN_IF_ERROR(staging->Fetch(&memory_->stream));
    LH_RETURN_IF_ERROR(memory_->stream.Copy(words.data(), fault_dev, sizeof(uint32_t)));
    LH_RETURN_IF_ERROR(Wait());
    uint32_t fault = 0;
    std::memcpy(&fault, words.data(), sizeof fault);
    if ((fault & codec::cuda::kFaultTables) != 0) {
      return absl::InvalidArgumentError(
          "the two sides' tables of tokens differ; go on from a checkpoint");
    }
    if (fault != 0) {
      return absl::InvalidArgumentError(
          "the blob's payload is none that an encoder writes: expected scales, counts and records "
          "that agree; the peer is broken or of another version");
    }
    if (staging) LH_RETURN_IF_ERROR(staging->Remember(context, blob));
    return BoundaryTensor{{values->data_dev(), codec::Dtype::kF32, shape},
                          std::move(values),
                          tables ? TokenIdsOf(blob) : nullptr};
  }
  StatusOr<std::vector<float>> CopyRows(const codec::TensorView& tensor,
                                        std::span<const size_t> rows) override {
    const size_t channels = tensor.shape.channels;
    std::vector<float> copied(rows.size() * channels);
    const auto* const values = static_cast<const float*>(tensor.data);
    for (size_t i = 0; i < rows.size(); ++i) {
      LH_RETURN_IF_ERROR(memory_->stream.Copy(
          copied.data() + i * channels, values + rows[i] * channels, channels * sizeof(float)));
    }
    LH_RETURN_IF_ERROR(Wait());
    return copied;
  }
  StatusOr<std::unique_ptr<BoundaryCodec>> Sharing(
      std::shared_ptr<const codec::Codec> codec) override {
    const codec::Shape &sent = memory_->sent, &received = memory_->received;
    LH_ASSIGN_OR_RETURN(
        Parts parts,
        PartsOf(memory_->device,
                {.shape = sent, .received = received, .send = codec, .receive = codec}));
    const size_t workspace_bytes =
        std::max(parts.send.WorkspaceBytes(sent), parts.receive.WorkspaceBytes(received));
    const size_t blob_bytes =
        std::max(parts.send.MaxEncodedBytes(sent), parts.receive.MaxEncodedBytes(received));
    const size_t most = std::max(memory_->blob.size(), memory_->tensor_bytes);
    if (workspace_bytes > memory_->workspace.size() || blob_bytes > most || parts.send_staging ||
        parts.send.cpu().TableRows(1) > 0) {
      return InvalidArgument(
          "expected a codec without state that needs a workspace of at most {} bytes and a blob of "
          "at most {}; {} needs {} and {}",
          memory_->workspace.size(), most, codec->name(), workspace_bytes, blob_bytes);
    }
    return std::make_unique<CudaBoundaryCodec>(memory_, std::move(parts));
  }

 private:
  // Device memory for one blob, and what keeps that from others.
  struct DeviceBlob {
    DeviceSpan span;
    std::shared_ptr<DeviceBuffer> owner;
  };
  StatusOr<DeviceBlob> NewDeviceBlob() {
    if (most_ <= memory_->blob.size()) {
      return DeviceBlob{{memory_->blob.data_dev(), memory_->blob.size()}, nullptr};
    }
    LH_ASSIGN_OR_RETURN(std::shared_ptr<DeviceBuffer> tensor, memory_->tensors.Take());
    return DeviceBlob{{tensor->data_dev(), tensor->size()}, std::move(tensor)};
  }
  const std::optional<DeviceTables>& OwnTables() const {
    return parts_.receive_tables ? parts_.receive_tables : parts_.send_tables;
  }
  DeviceSpan workspace() { return {memory_->workspace.data_dev(), memory_->workspace.size()}; }
  // Waits for all work queued on the stream.
  Status Wait() {
    LH_RETURN_IF_ERROR(memory_->done.Record(memory_->stream));
    return memory_->done.Await(Deadline::After(kPatience));
  }

  const std::shared_ptr<BoundaryMemory> memory_;
  const size_t most_;  // bytes of a blob
  Parts parts_;
};

}  // namespace

StatusOr<std::unique_ptr<BoundaryCodec>> CreateCudaBoundaryCodec(
    const cuda::Device& device, const BoundaryCodecOptions& options) {
  const codec::Shape sent = options.shape, received = options.received_shape();
  LH_ASSIGN_OR_RETURN(CudaBoundaryCodec::Parts parts, CudaBoundaryCodec::PartsOf(device, options));
  const size_t blob_bytes =
      std::max(parts.send.MaxEncodedBytes(sent), parts.receive.MaxEncodedBytes(received));
  const size_t workspace_bytes = std::max<size_t>(
      {parts.send.WorkspaceBytes(sent), parts.receive.WorkspaceBytes(received), 64});
  LH_ASSIGN_OR_RETURN(std::shared_ptr<BoundaryMemory> memory,
                      BoundaryMemory::Create(device, options, blob_bytes, workspace_bytes));
  LH_ASSIGN_OR_RETURN(parts.send_tables,
                      TablesOf(&memory->stream, parts.send, sent, options.vocabulary));
  LH_ASSIGN_OR_RETURN(parts.receive_tables,
                      TablesOf(&memory->stream, parts.receive, received, options.vocabulary));
  return std::make_unique<CudaBoundaryCodec>(std::move(memory), std::move(parts));
}

StatusOr<std::unique_ptr<BoundaryCodec>> CreateBoundaryCodec(const std::optional<cuda::Device>& gpu,
                                                             const BoundaryCodecOptions& options) {
  if (gpu && NeedsHost(options)) return CreateHostedBoundaryCodec(*gpu, options);
  if (gpu) return CreateCudaBoundaryCodec(*gpu, options);
  return BoundaryCodec::Create(options);
}

}  // namespace longhaul::worker
