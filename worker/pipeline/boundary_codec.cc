#include "worker/pipeline/boundary_codec.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/aligned_buffer.h"
#include "codec/predict/format.h"

namespace longhaul::worker {
namespace {

class HostBoundaryCodec final : public BoundaryCodec {
 public:
  HostBoundaryCodec(BoundaryCodecOptions options, std::shared_ptr<AlignedBuffer> workspace)
      : options_(std::move(options)), workspace_(std::move(workspace)) {}

  StatusOr<BlobBuffer> NewBlob(size_t bytes) override {
    auto memory = std::make_shared<AlignedBuffer>(bytes);
    return BlobBuffer{memory->span(), memory};
  }

  codec::predict::TablesShape tables_shape() const override { return TablesShapeOf(options_); }
  StatusOr<uint64_t> TablesCheck() override {
    LH_ASSIGN_OR_RETURN(const codec::predict::Tables* tables, OwnTables());
    return tables->check();
  }
  StatusOr<codec::predict::Tables> SaveTables() override {
    LH_ASSIGN_OR_RETURN(const codec::predict::Tables* tables, OwnTables());
    LH_ASSIGN_OR_RETURN(auto saved, codec::predict::Tables::Create(tables->shape()));
    saved.CopyFrom(*tables);
    return saved;
  }
  Status RestoreTables(const codec::predict::Tables& tables) override {
    for (const auto& [codec, place] : {std::pair(options_.send.get(), &send_tables_),
                                       std::pair(options_.receive.get(), &receive_tables_)}) {
      if (codec->TableRows(options_.vocabulary) == 0) continue;
      // Both directions begin from the same saved tables, and each goes on by itself.
      LH_ASSIGN_OR_RETURN(codec::predict::Tables* const mine, TablesOf(*codec, place));
      if (mine->shape() != tables.shape()) {
        return absl::InvalidArgumentError("expected tables of the same shape to restore");
      }
      mine->CopyFrom(tables);
    }
    return absl::OkStatus();
  }

  StatusOr<EncodedBlob> Encode(const codec::TensorView& tensor,
                               const codec::Context& given) override {
    LH_ASSIGN_OR_RETURN(const codec::Context context,
                        WithTables(*options_.send, &send_tables_, given));
    const size_t most = options_.send->MaxEncodedBytes(options_.shape);
    LH_ASSIGN_OR_RETURN(BlobBuffer buffer, NewBlob(most + options_.room_bytes));
    codec::EncodeResult result;
    LH_RETURN_IF_ERROR(options_.send->Encode(tensor, context, workspace_->span(),
                                             buffer.bytes.first(most), &result));
    return EncodedBlob{std::move(buffer), result.bytes, result.nonfinite_tiles};
  }

  StatusOr<BoundaryTensor> Decode(std::span<const std::byte> blob,
                                  const codec::Context& given) override {
    LH_ASSIGN_OR_RETURN(const codec::Context context,
                        WithTables(*options_.receive, &receive_tables_, given));
    // New memory for each tensor: many wait at once, and the tensor holds its own.
    const codec::Shape shape = options_.received_shape();
    auto values = std::make_shared<AlignedBuffer>(shape.elements() * sizeof(float));
    void* const data = values->span().data();
    LH_RETURN_IF_ERROR(options_.receive->Decode(blob, context, workspace_->span(),
                                                {data, codec::Dtype::kF32, shape}));
    return BoundaryTensor{{data, codec::Dtype::kF32, shape},
                          std::move(values),
                          context.tables == nullptr ? nullptr : TokenIdsOf(blob)};
  }

  StatusOr<std::unique_ptr<BoundaryCodec>> Sharing(
      std::shared_ptr<const codec::Codec> codec) override {
    const size_t needed = std::max(codec->WorkspaceBytes(options_.shape),
                                   codec->WorkspaceBytes(options_.received_shape()));
    if (needed > workspace_->size()) {
      return InvalidArgument(
          "expected a codec that needs a workspace of at most {} bytes; {} needs {}",
          workspace_->size(), codec->name(), needed);
    }
    return std::make_unique<HostBoundaryCodec>(
        BoundaryCodecOptions{.shape = options_.shape,
                             .received = options_.received,
                             .send = codec,
                             .receive = std::move(codec),
                             .room_bytes = options_.room_bytes},
        workspace_);
  }

 private:
  using OptionalTables = std::optional<codec::predict::Tables>;

  StatusOr<codec::predict::Tables*> OwnTables() {
    return options_.receive->TableRows(options_.vocabulary) > 0
               ? TablesOf(*options_.receive, &receive_tables_)
               : TablesOf(*options_.send, &send_tables_);
  }
  // Makes the tables when they are first needed: with a large vocabulary they take much memory.
  StatusOr<codec::predict::Tables*> TablesOf(const codec::Codec& codec, OptionalTables* place) {
    if (!*place) {
      LH_ASSIGN_OR_RETURN(*place, codec::predict::Tables::Create(codec::predict::TablesShapeFor(
                                      codec, options_.vocabulary, options_.shape.channels)));
    }
    return &**place;
  }
  StatusOr<codec::Context> WithTables(const codec::Codec& codec, OptionalTables* place,
                                      codec::Context context) {
    if (codec.TableRows(options_.vocabulary) > 0) {
      LH_ASSIGN_OR_RETURN(context.tables, TablesOf(codec, place));
    }
    return context;
  }

  const BoundaryCodecOptions options_;
  OptionalTables send_tables_, receive_tables_;
  const std::shared_ptr<AlignedBuffer> workspace_;
};

}  // namespace

codec::predict::TablesShape TablesShapeOf(const BoundaryCodecOptions& options) {
  for (const codec::Codec* codec : {options.receive.get(), options.send.get()}) {
    if (codec->TableRows(options.vocabulary) == 0) continue;
    return codec::predict::TablesShapeFor(*codec, options.vocabulary, options.shape.channels);
  }
  return {};
}

std::shared_ptr<const std::vector<uint32_t>> TokenIdsOf(std::span<const std::byte> blob) {
  return std::make_shared<const std::vector<uint32_t>>(codec::predict::IdsOf(blob));
}

std::unique_ptr<BoundaryCodec> BoundaryCodec::Create(const BoundaryCodecOptions& options) {
  const size_t workspace_bytes =
      std::max(options.send->WorkspaceBytes(options.shape),
               options.receive->WorkspaceBytes(options.received_shape()));
  return std::make_unique<HostBoundaryCodec>(options,
                                             std::make_shared<AlignedBuffer>(workspace_bytes));
}

}  // namespace longhaul::worker
