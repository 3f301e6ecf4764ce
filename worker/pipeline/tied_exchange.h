// Sums the gradient of a tied matrix once a step over the two stages that hold the matrix: the
// first stage as embedding, the last as head. Each of the two stages has a TiedExchange, its end of
// the exchange. The ends talk over a port.
//
//   exchange.NoteTokens(ids);                     // inputs of each forward of the step
//   exchange.Begin(step);                         // after the last backward of the step
//   while (true) {
//     LH_RETURN_IF_ERROR(exchange.Advance());
//     if (exchange.IsDone()) break;
//     ... wait for an event; TensorArrived goes to Take(), PieceTaken to NotePieceTaken() ...
//   }
//   exchange.BeginCheck(snapshot);                // at a checkpoint; DigestArrived goes to Take()
//
// The head's end sends its whole gradient. The embedding's end sends only the rows that tokens of
// the step have read, because its other rows are zero. Both ends know the tokens, so row numbers
// need not be sent. Rows travel in pieces of about 1 MiB, of which at most kPiecesUnderWay are in
// flight. An end adds the rows of the other end only after it has sent all its own. a + b and b + a
// have the same bits, so both ends get the same gradient.
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

// How a matrix is cut: into `pieces` tensors of `shape`. If rows do not fill the last piece, its
// end is padded with zeros.
struct TiedPieces {
  codec::Shape shape;  // 1 x rows of a piece x channels
  uint32_t pieces = 0;
};
// Returns how a matrix of `rows` x `channels` is cut.
TiedPieces PiecesOf(uint32_t rows, uint32_t channels);

// Returns a digest of the matrix and its optimizer state in a snapshot.
uint64_t DigestOf(const StageSnapshot& snapshot, const TiedMatrix& matrix);

class TiedExchange {
 public:
  static constexpr uint32_t kPiecesUnderWay = 16;  // in each direction
  // Sends to the other end.
  struct Link {
    // The event PieceTaken must follow when the peer has taken the piece.
    std::function<void(Step step, Microbatch piece, BoundaryTensor tensor)> send_piece;
    std::function<void(Step step, uint64_t digest)> send_digest;
  };

  // `matrix` must outlive this object. `embedding`: true at the embedding's end, false at the
  // head's.
  TiedExchange(TiedMatrix* matrix, bool embedding, Link link);

  // Notes the input tokens of a forward. `ids`: below matrix->rows(); not read after the call.
  void NoteTokens(std::span<const int32_t> ids);
  // Begins the exchange of a step. Tokens that are noted later belong to the next step.
  void Begin(Step step);
  // Sends and adds as many rows as is possible now. Never waits. kInvalidArgument: more pieces have
  // arrived than the other end may send. Other errors: those of TiedMatrix.
  Status Advance();
  bool IsDone() const { return !step_.has_value(); }

  // Sends the digest of the matrix in `snapshot` to the other end, whose digest must be equal.
  void BeginCheck(const StageSnapshot& snapshot);
  // Returns true if the digests are equal, false if the other end's digest has not arrived yet.
  // kInternal: the digests differ. Call it after BeginCheck, until it returns true.
  StatusOr<bool> IsChecked();

  // Take a piece or a digest of the other end, even before Begin. `under_way`: the step that this
  // stage is in. kInvalidArgument: the piece or digest is of another step.
  Status Take(TensorArrived arrived, Step under_way);
  Status Take(const DigestArrived& arrived, Step under_way);
  // Notes that the peer has taken a piece, so that another piece may be sent.
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
