#include "worker/data/set_windows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "run/data/sample_order.h"
#include "worker/data/chunk_cache.h"
#include "worker/data/set_chunks.h"

namespace longhaul::worker {
namespace {

class SetWindows final : public WindowSource {
 public:
  explicit SetWindows(SetWindowsOptions options)
      : options_(std::move(options)),
        mixture_(*options_.chunks->mixture()),
        sources_(data::WindowsOfSources(mixture_, options_.context, options_.validation_share)) {}

  std::shared_ptr<SetChunks> chunks() const override { return options_.chunks; }
  uint64_t WindowsOf(Text text) const override {
    uint64_t windows = 0;
    for (const data::SourceWindows& source : sources_) windows += CountOf(source, text);
    return windows;
  }

  Status Read(Text text, uint64_t window, std::span<int32_t> inputs,
              std::span<int32_t> targets) override {
    const Place place = Find(text, window);
    const data::DataSet& set = SetOf(place);
    const uint32_t context = options_.context;
    ids_.resize(context + 1);
    LH_RETURN_IF_ERROR(ReadIds(place, ids_));
    for (uint32_t i = 0; i < context; ++i) {
      inputs[i] = static_cast<int32_t>(ids_[i]);
      targets[i] = static_cast<int32_t>(ids_[i + 1]);
    }
    if (!set.has_masks()) return absl::OkStatus();
    counts_.resize(context);
    LH_RETURN_IF_ERROR(ReadMask(place, counts_));
    for (uint32_t i = 0; i < context; ++i) {
      if (!counts_[i]) targets[i] = -1;
    }
    return absl::OkStatus();
  }

  void Expect(Text text, std::span<const uint64_t> windows) override {
    std::vector<ChunkId> ids;
    for (const uint64_t window : windows) {
      const Place place = Find(text, window);
      const data::DataSet& set = SetOf(place);
      EachPiece(place, options_.context + 1, [&](const Piece& piece) {
        AddChunks(piece, false, piece.first * set.bytes_per_token,
                  piece.count * set.bytes_per_token, &ids);
        // Shards without a mask may stand beside others that have one.
        if (ListOf(set, place.list).shards[piece.id.shard].mask) {
          const uint64_t first = piece.first / 8, end = (piece.first + piece.count + 7) / 8;
          AddChunks(piece, true, first, end - first, &ids);
        }
        return absl::OkStatus();
      }).IgnoreError();
    }
    options_.chunks->Expect(ids);
  }

 private:
  // Where a window begins.
  struct Place {
    uint32_t source = 0;
    Text list = Text::kTraining;  // of the source's lists
    uint64_t token = 0;           // of that list
  };
  // Tokens of one shard.
  struct Piece {
    ChunkId id;  // without chunk and mask
    uint64_t first = 0, count = 0;
    size_t at = 0;  // among those that are read
  };

  static uint64_t CountOf(const data::SourceWindows& source, Text text) {
    return text == Text::kTraining ? source.training : source.validation;
  }
  const data::DataSet& SetOf(const Place& place) const {
    return mixture_.sources[place.source].set;
  }
  static const data::TokenList& ListOf(const data::DataSet& set, Text text) {
    return text == Text::kTraining ? set.training : set.validation;
  }
  Place Find(Text text, uint64_t window) const {
    for (uint32_t source = 0; source < sources_.size(); ++source) {
      const data::SourceWindows& one = sources_[source];
      if (window >= CountOf(one, text)) {
        window -= CountOf(one, text);
        continue;
      }
      Place place{.source = source, .list = text, .token = window * options_.context};
      if (text == Text::kValidation && ListOf(SetOf(place), text).shards.empty()) {
        place.list = Text::kTraining;
        place.token += one.training_tokens;
      }
      return place;
    }
    LH_CHECK(false, "window {} is beyond the last one", window);
  }

  // Hands the shards' parts of `count` tokens from `place` on to `each`, in order.
  template <class Each>
  Status EachPiece(const Place& place, uint64_t count, const Each& each) const {
    const std::vector<data::Shard>& shards = ListOf(SetOf(place), place.list).shards;
    uint64_t skipped = 0, done = 0;
    for (uint32_t shard = 0; shard < shards.size() && done < count; ++shard) {
      const uint64_t tokens = shards[shard].tokens;
      const uint64_t wanted = place.token + done;
      if (wanted < skipped + tokens) {
        const uint64_t first = wanted - skipped;
        const uint64_t here = std::min(tokens - first, count - done);
        LH_RETURN_IF_ERROR(
            each(Piece{.id = {.source = place.source, .text = place.list, .shard = shard},
                       .first = first,
                       .count = here,
                       .at = done}));
        done += here;
      }
      skipped += tokens;
    }
    LH_CHECK(done == count, "a window ends behind the last token");
    return absl::OkStatus();
  }

  void AddChunks(const Piece& piece, bool mask, uint64_t first_byte, uint64_t bytes,
                 std::vector<ChunkId>* ids) const {
    const uint64_t size = mixture_.sources[piece.id.source].set.chunk_bytes;
    for (uint64_t chunk = first_byte / size; chunk * size < first_byte + bytes; ++chunk) {
      ChunkId id = piece.id;
      id.mask = mask;
      id.chunk = chunk;
      ids->push_back(id);
    }
  }

  // `bytes` of a shard's file from `first` on.
  Status ReadBytes(const Piece& piece, bool mask, uint64_t first, std::span<std::byte> bytes) {
    const uint64_t size = mixture_.sources[piece.id.source].set.chunk_bytes;
    while (!bytes.empty()) {
      ChunkId id = piece.id;
      id.mask = mask;
      id.chunk = first / size;
      LH_ASSIGN_OR_RETURN(const SharedChunk chunk, options_.chunks->Get(id));
      const uint64_t begin = first % size;
      LH_CHECK(begin < chunk->size(), "chunk {} has {} bytes", id.chunk, chunk->size());
      const size_t here = std::min<uint64_t>(bytes.size(), chunk->size() - begin);
      std::memcpy(bytes.data(), chunk->data() + begin, here);
      bytes = bytes.subspan(here);
      first += here;
    }
    return absl::OkStatus();
  }

  Status ReadIds(const Place& place, std::vector<uint32_t>& ids) {
    const data::DataSet& set = SetOf(place);
    return EachPiece(place, ids.size(), [&](const Piece& piece) -> Status {
      raw_.resize(piece.count * set.bytes_per_token);
      LH_RETURN_IF_ERROR(ReadBytes(piece, false, piece.first * set.bytes_per_token, raw_));
      for (uint64_t i = 0; i < piece.count; ++i) {
        uint32_t id = 0;
        std::memcpy(&id, raw_.data() + i * set.bytes_per_token, set.bytes_per_token);
        if (id >= set.vocabulary) {
          return DataLoss("token {} of {} has the id {} of a vocabulary of {}", piece.first + i,
                          options_.chunks->FileOf(piece.id)->file, id, set.vocabulary);
        }
        ids[piece.at + i] = id;
      }
      return absl::OkStatus();
    });
  }

  // Reads the loss mask of `counts.size()` tokens, starting after the window's first token.
  Status ReadMask(Place place, std::vector<bool>& counts) {
    ++place.token;
    return EachPiece(place, counts.size(), [&](const Piece& piece) -> Status {
      const uint64_t first = piece.first / 8, end = (piece.first + piece.count + 7) / 8;
      raw_.resize(end - first);
      if (!ListOf(SetOf(place), place.list).shards[piece.id.shard].mask) {
        std::fill(raw_.begin(), raw_.end(), std::byte{0xff});
      } else {
        LH_RETURN_IF_ERROR(ReadBytes(piece, true, first, raw_));
      }
      for (uint64_t i = 0; i < piece.count; ++i) {
        const uint64_t bit = piece.first + i - first * 8;
        counts[piece.at + i] = ((raw_[bit / 8] >> (bit % 8)) & std::byte{1}) != std::byte{0};
      }
      return absl::OkStatus();
    });
  }

  const SetWindowsOptions options_;
  const data::Mixture& mixture_;
  const std::vector<data::SourceWindows> sources_;
  std::vector<uint32_t> ids_;
  std::vector<bool> counts_;
  std::vector<std::byte> raw_;
};

}  // namespace

std::unique_ptr<WindowSource> WindowsOfSets(SetWindowsOptions options) {
  return std::make_unique<SetWindows>(std::move(options));
}

}  // namespace longhaul::worker
