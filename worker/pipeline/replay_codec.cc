#include "worker/pipeline/replay_codec.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/precise_sleep.h"
#include "codec/blob.h"
#include "codec/registry.h"
#include "worker/stage/noise.h"

namespace longhaul::worker {
namespace {

class ReplayCodec final : public codec::Codec {
 public:
  ReplayCodec(std::shared_ptr<const codec::Codec> real, ReplaySpec::CodecTimes times,
              AlignedBuffer blob, size_t blob_bytes)
      : real_(std::move(real)),
        times_(std::move(times)),
        blob_(std::move(blob)),
        blob_bytes_(blob_bytes) {}

  const std::string& name() const override { return real_->name(); }
  codec::CodecKind kind() const override { return real_->kind(); }
  size_t MaxEncodedBytes(const codec::Shape& /*shape*/) const override { return blob_bytes_; }
  bool fixed_size() const override { return true; }
  size_t WorkspaceBytes(const codec::Shape& /*shape*/) const override { return 0; }

  Status Encode(const codec::TensorView& /*in*/, const codec::Context& /*context*/,
                std::span<std::byte> /*workspace*/, std::span<std::byte> out,
                codec::EncodeResult* result) const override {
    const MonoTime begin = Now();
    std::memcpy(out.data(), blob_.span().data(), blob_bytes_);
    *result = {.bytes = blob_bytes_};
    SleepPreciselyUntil(begin + times_.encode);
    return absl::OkStatus();
  }

  Status Decode(std::span<const std::byte> blob, const codec::Context& /*context*/,
                std::span<std::byte> /*workspace*/,
                const codec::MutableTensorView& /*out*/) const override {
    const MonoTime begin = Now();
    const auto mine = blob_.span().first(blob_bytes_);
    const size_t head = std::min(kComparedBytes, blob_bytes_);
    if (blob.size() != mine.size() || std::memcmp(blob.data(), mine.data(), head) != 0) {
      return InvalidArgument("expected the replay's own blob of {} bytes by {}, got {} bytes{}",
                             mine.size(), name(), blob.size(),
                             blob.size() == mine.size() ? " of another beginning" : "");
    }
    SleepPreciselyUntil(begin + times_.decode);
    return absl::OkStatus();
  }

 private:
  // The header and the first values: comparing all would cost what a replay saves.
  static constexpr size_t kComparedBytes = 4096;
  const std::shared_ptr<const codec::Codec> real_;
  const ReplaySpec::CodecTimes times_;
  const AlignedBuffer blob_;
  const size_t blob_bytes_;
};

// The blob of noise. Of a class of Python, which need not exist in a replay, a blob of the largest
// size with zeros; so a replay can answer what a codec would gain that nobody has written.
Status WriteBlob(const codec::Codec& real, const codec::Shape& shape, std::span<std::byte> blob,
                 codec::EncodeResult* result) {
  if (!codec::FindFamily(real.kind().id)->names_class) {
    const BoundaryTensor noise = NoiseTensor(shape);
    AlignedBuffer workspace(real.WorkspaceBytes(shape));
    return real.Encode(noise.view, codec::Context{}, workspace.span(), blob, result);
  }
  std::ranges::fill(blob, std::byte{});
  codec::WriteBlobHeader({.codec = real.kind().id,
                          .shape = shape,
                          .payload_bytes = blob.size() - codec::kBlobHeaderBytes,
                          .parameters = real.kind().parameters},
                         blob);
  *result = {.bytes = blob.size()};
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const codec::Codec>> MakeReplayCodec(
    std::shared_ptr<const codec::Codec> real, const ReplaySpec::CodecTimes& times,
    const codec::Shape& shape) {
  if (real->MessageBytes(shape) > 0 || real->TableRows(1) > 0) {
    return InvalidArgument(
        "{} cannot be replayed as measured, because its blobs depend on what was sent before; set "
        "replay.codecs to real",
        real->name());
  }
  AlignedBuffer blob(real->MaxEncodedBytes(shape));
  codec::EncodeResult result;
  LH_RETURN_IF_ERROR(WriteBlob(*real, shape, blob.span(), &result));
  return std::make_shared<ReplayCodec>(std::move(real), times, std::move(blob), result.bytes);
}

}  // namespace longhaul::worker
