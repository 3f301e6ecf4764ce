// All-gathers of equal parts.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "transport/collective/zip/zip_communicator.h"

namespace longhaul::collective::zip {

Status ZipCommunicator::GatherEqual(const void* in, void* out, uint64_t count, const Work& own,
                                    Queue queue) {
  if (count > kMaxElements) {
    return InvalidArgument("expected at most {} elements for a rank, got {}", kMaxElements, count);
  }
  if (count == 0) return absl::OkStatus();
  const uint64_t piece_elements = PieceOf(count);
  const uint64_t pieces = (count + piece_elements - 1) / piece_elements;
  const uint64_t space = AlignBlob(MostBytes(piece_elements));
  LH_RETURN_IF_ERROR(Limited([&] { return ReserveAll(space, size() * space, piece_elements); }));
  const bool sizes_first = this->sizes_first() || (wide_ && waits());
  bool wide = false;
  std::array<uint64_t, kPlaces> reads{}, lengths{};
  std::array<bool, kPlaces> late{};
  const auto count_of = [&](uint64_t number) { return CountAt(count, piece_elements, number); };
  const auto blob_of = [&](uint64_t number) { return sent_.data() + number % kPlaces * space; };
  const auto blobs_of = [&](uint64_t number) {
    return received_.data() + number % kPlaces * size() * space;
  };
  const auto encode = [&](uint64_t number, Queue on) -> Status {
    LH_RETURN_IF_ERROR(
        coder_->Encode(At(in, number * piece_elements), count_of(number), blob_of(number), on));
    return number == 0 ? pipeline_.Fork(on) : absl::OkStatus();
  };
  const auto gather = [&](uint64_t number, uint64_t length, Queue on) {
    length = AlignExchanged(length);
    lengths[number % kPlaces] = length;
    if (blobs_ != nullptr) {
      const uint64_t elements = count_of(number);
      const std::vector<SizedBlock> send(size(), Whole(blob_of(number), 0, elements));
      std::vector<Block> receive(size());
      for (uint32_t r = 0; r < size(); ++r) receive[r] = {r * length, MostBytes(elements)};
      return blobs_->Exchange(op_, blob_of(number), send, blobs_of(number), receive, on);
    }
    counted().sent_bytes += (size() - 1) * length;
    return below().AllGather(blob_of(number), blobs_of(number), length, Dtype::kBytes, on);
  };
  const auto first = [&](uint64_t number, Queue on) -> Status {
    std::byte* const words = words_.data() + number % kPlaces * size() * kSizeWordBytes;
    std::vector<const void*> all;
    if (sizes_first) {
      LH_RETURN_IF_ERROR(
          below().AllGather(SizeWord(blob_of(number)), words, kSizeWordBytes, Dtype::kBytes, on));
      if (number == 0) LH_RETURN_IF_ERROR(pipeline_.Beside(on, own));
      for (uint32_t r = 0; r < size(); ++r) all.push_back(words + r * kSizeWordBytes);
    } else {
      LH_RETURN_IF_ERROR(gather(number, FirstBytes(count_of(number)), on));
      if (number == 0) LH_RETURN_IF_ERROR(pipeline_.Beside(on, own));
      if (!waits()) return absl::OkStatus();
      const uint64_t length = lengths[number % kPlaces];
      for (uint32_t r = 0; r < size(); ++r) {
        all.push_back(SizeWord(r == rank() ? blob_of(number) : blobs_of(number) + r * length));
      }
    }
    LH_ASSIGN_OR_RETURN(reads[number % kPlaces], engine_->Read(all, on));
    return absl::OkStatus();
  };
  const auto rest = [&](uint64_t number, Queue on) -> Status {
    LH_ASSIGN_OR_RETURN(const std::span<const uint64_t> words, AwaitSizes(reads[number % kPlaces]));
    uint64_t longest = 0;
    for (uint32_t r = 0; r < size(); ++r) {
      LH_ASSIGN_OR_RETURN(const uint64_t bytes, BlobBytes(count_of(number), words[r]));
      longest = std::max(longest, bytes);
      if (r == rank()) CountEscapes(count_of(number), bytes);
    }
    wide = wide || longest > FirstBytes(count_of(number));
    late[number % kPlaces] = sizes_first || longest > lengths[number % kPlaces];
    return late[number % kPlaces] ? gather(number, longest, on) : absl::OkStatus();
  };
  const auto decode_all = [&](uint64_t number, IfCut if_cut, Queue on) -> Status {
    const uint64_t length = lengths[number % kPlaces];
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      LH_RETURN_IF_ERROR(coder_->Decode(blobs_of(number) + r * length, length, count_of(number),
                                        At(out, r * count + number * piece_elements), if_cut, on));
    }
    return absl::OkStatus();
  };
  const auto decode = [&](uint64_t number, Queue on) {
    return decode_all(number, waits() ? IfCut::kLeave : IfCut::kIsFault, on);
  };
  const auto finish = [&](uint64_t number, Queue on) {
    return late[number % kPlaces] ? decode_all(number, IfCut::kIsFault, on) : absl::OkStatus();
  };
  std::vector<Step> steps = {{.lag = 0, .wire = false, .run = encode},
                             {.lag = 0, .wire = true, .run = first}};
  if (!sizes_first) steps.push_back({.lag = 1, .wire = false, .run = decode});
  if (waits()) {
    steps.push_back({.lag = 1, .wire = true, .run = rest});
    steps.push_back({.lag = 1, .wire = false, .run = finish});
  }
  LH_RETURN_IF_ERROR(Limited([&] { return pipeline_.Run(pieces, steps, queue); }));
  LH_RETURN_IF_ERROR(pipeline_.Join(queue));
  wide_ = wide;
  ++counted().calls;
  counted().tensor_bytes += (size() - 1) * count * kElementBytes;
  return absl::OkStatus();
}

}  // namespace longhaul::collective::zip
