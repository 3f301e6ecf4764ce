// Sums the gradient of a tied model's matrix, once a step, over the two stages that hold it. One
// stage's end; the other one is at the far end of a port.
//
//   exchange.NoteTokens(ids);                     // of each forward of the step
//   exchange.Begin(step);                         // its last backward is done
//   while (true) {
//     LH_RETURN_IF_ERROR(exchange.Advance());
//     if (exchange.IsDone()) break;
//     ... wait for an event; TensorArrived goes to Take(), PieceTaken to NotePieceTaken() ...
//   }
//   exchange.BeginCheck(snapshot);                // at a checkpoint; DigestArrived goes to Take()
//
// The head's end sends its whole gradient, the embedding's end the rows that tokens of the step
// have read: the others are zero. Both ends read the tokens, so no row numbers travel. Rows go in
// pieces of about a MiB, and at most kPiecesUnderWay of these wait to be taken. What comes is kept
// until the own rows are read, and then added: a + b and b + a have the same bits. So both ends
// have the same gradient.
//
// Threads: the compute thread.
#ifndef LONGHAUL_WORKER_PIPELINE_TIED_EXCHANGE_H_
#define LONGHAUL_WORKER_PIPELINE_TIED_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "codec/codec.h"
#include "worker/pipeline/event_queue.h"
#include "worker/stage/stage.h"
#include "worker/stage/tied_matrix.h"

namespace longhaul::worker {

// How a matrix is cut: `pieces` tensors of `shape`. Of a list of rows the last piece may be filled
// up with zeros.
struct TiedPieces {
  codec::Shape shape;  // 1 x rows of a piece x channels
  uint32_t pieces = 0;
};
TiedPieces PiecesOf(uint32_t rows, uint32_t channels);

// Of the matrix in a snapshot, and of its moments.
uint64_t DigestOf(const StageSnapshot& snapshot, const TiedMatrix& matrix);

class TiedExchange {
 public:
  static constexpr uint32_t kPiecesUnderWay = 16;
  // The way to the other end.
  struct Link {
    // A PieceTaken follows when the peer has taken it.
    std::function<void(Step step, Microbatch piece, BoundaryTensor tensor)> send_piece;
    std::function<void(Step step, uint64_t digest)> send_digest;
  };

  // `matrix` outlives it. `embedding`: this end has the embedding, else the head.
  TiedExchange(TiedMatrix* matrix, bool embedding, Link link);

  void NoteTokens(std::span<const int32_t> ids);
  void Begin(Step step);
  // Sends, reads and adds what can be by now.
  Status Advance();
  bool IsDone() const { return !step_.has_value(); }

  // Tells the peer what `snapshot` has of the matrix, which is to be the same there.
  void BeginCheck(const StageSnapshot& snapshot);
  // False: the peer has not said yet. kInternal where it has another one.
  StatusOr<bool> IsChecked();

  // Before Begin, too. `under_way`: the step that this stage is in. kInvalidArgument for what is
  // none of that step.
  Status Take(TensorArrived arrived, Step under_way);
  Status Take(const DigestArrived& arrived, Step under_way);
  void NotePieceTaken() { --under_way_; }

 private:
  uint32_t PiecesIn(const std::vector<int32_t>& rows) const;
  std::span<const int32_t> RowsOf(const std::vector<int32_t>& rows, uint32_t piece) const;
  Status SendPiece();
  Status AddPiece(const BoundaryTensor& tensor);
  Status CheckStep(std::string_view what, Step came, Step under_way) const;

  TiedMatrix* const matrix_;
  const bool embedding_;
  const Link link_;
  const TiedPieces pieces_;
  std::vector<uint8_t> is_read_;  // of each row: by tokens of the step
  std::vector<int32_t> all_;      // rows
  std::vector<int32_t> read_;     // ascending, of the step that has begun
  std::optional<Step> step_;      // has begun and is not done
  uint32_t sent_ = 0, added_ = 0, under_way_ = 0;
  std::map<uint32_t, BoundaryTensor> arrived_;
  std::optional<uint64_t> own_digest_, peer_digest_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_TIED_EXCHANGE_H_
