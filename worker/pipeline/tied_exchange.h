// Sums the gradient of a tied model's matrix once a step over the two stages that hold the matrix.
// This class is one stage's end; the other is at the far end of a port.
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
// The head's end sends its whole gradient. The embedding's end sends the rows that tokens of the
// step have read; its other rows are zero. Both ends know the tokens, so no row numbers travel.
// Pieces have about 1 MiB, and at most kPiecesUnderWay of them are in flight. Arrived rows are kept
// until this end's rows have been read, and added then. a + b and b + a have the same bits, so both
// ends get the same gradient.
//
// Threads: the compute thread.
#pragma once

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
#include "worker/stage/replicas/tied_matrix.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// How a matrix is cut: into `pieces` tensors of `shape`. The last piece of a list of rows may be
// padded with zeros.
struct TiedPieces {
  codec::Shape shape;  // 1 x rows of a piece x channels
  uint32_t pieces = 0;
};
TiedPieces PiecesOf(uint32_t rows, uint32_t channels);

// Digest of the matrix in a snapshot and of its optimizer state.
uint64_t DigestOf(const StageSnapshot& snapshot, const TiedMatrix& matrix);

class TiedExchange {
 public:
  static constexpr uint32_t kPiecesUnderWay = 16;
  // Sends to the other end.
  struct Link {
    // The port answers with a PieceTaken when the peer has taken the piece.
    std::function<void(Step step, Microbatch piece, BoundaryTensor tensor)> send_piece;
    std::function<void(Step step, uint64_t digest)> send_digest;
  };

  // `matrix` outlives this object. `embedding`: this end has the embedding; else the head.
  TiedExchange(TiedMatrix* matrix, bool embedding, Link link);

  void NoteTokens(std::span<const int32_t> ids);
  void Begin(Step step);
  // Sends, reads and adds as many rows as possible now.
  Status Advance();
  bool IsDone() const { return !step_.has_value(); }

  // Tells the peer the digest of the matrix in `snapshot`, which must be equal at the peer.
  void BeginCheck(const StageSnapshot& snapshot);
  // False: the peer's digest has not arrived. kInternal: it differs.
  StatusOr<bool> IsChecked();

  // May be called before Begin. `under_way`: the step that this stage is in. kInvalidArgument: the
  // piece or digest does not belong to that step.
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
  std::vector<uint8_t> is_read_;  // by row: whether tokens of the step read it
  std::vector<int32_t> all_;      // all rows
  std::vector<int32_t> read_;     // rows read in the step that has begun, ascending
  std::optional<Step> step_;      // the step that has begun and is not done
  uint32_t sent_ = 0, added_ = 0, under_way_ = 0;
  std::map<uint32_t, BoundaryTensor> arrived_;
  std::optional<uint64_t> own_digest_, peer_digest_;
};

}  // namespace longhaul::worker
