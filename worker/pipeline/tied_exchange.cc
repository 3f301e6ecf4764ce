#include "worker/pipeline/tied_exchange.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "base/hash.h"

namespace longhaul::worker {
namespace {

// A piece has as many whole rows as fit into this many bytes, and at least one.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

}  // namespace

TiedPieces PiecesOf(uint32_t rows, uint32_t channels) {
  const uint64_t fitting = kPieceBytes / (sizeof(float) * channels);
  const auto rows_of_a_piece = static_cast<uint32_t>(std::clamp<uint64_t>(fitting, 1, rows));
  return {.shape = {1, rows_of_a_piece, channels},
          .pieces = (rows + rows_of_a_piece - 1) / rows_of_a_piece};
}

uint64_t DigestOf(const StageSnapshot& snapshot, const TiedMatrix& matrix) {
  const std::string moments = matrix.name() + ".";
  std::vector<uint64_t> digests;
  for (const std::vector<NamedArray>* arrays : {&snapshot.parameters, &snapshot.moments}) {
    for (const NamedArray& array : *arrays) {
      if (array.name != matrix.name() && !array.name.starts_with(moments)) continue;
      digests.push_back(Checksum64(std::as_bytes(std::span(array.values))));
    }
  }
  return Checksum64(std::as_bytes(std::span(digests)));
}

TiedExchange::TiedExchange(TiedMatrix* matrix, bool embedding, Link link)
    : matrix_(matrix),
      embedding_(embedding),
      link_(std::move(link)),
      pieces_(PiecesOf(matrix->rows(), matrix->channels())),
      is_read_(matrix->rows()),
      all_(matrix->rows()) {
  std::iota(all_.begin(), all_.end(), 0);
}

void TiedExchange::NoteTokens(std::span<const int32_t> ids) {
  for (const int32_t id : ids) is_read_[static_cast<size_t>(id)] = 1;
}

void TiedExchange::Begin(Step step) {
  step_ = step;
  sent_ = added_ = 0;
  read_.clear();
  for (size_t row = 0; row < is_read_.size(); ++row) {
    if (is_read_[row] != 0) read_.push_back(static_cast<int32_t>(row));
  }
  // Tokens that are noted from now on are of the next step.
  std::ranges::fill(is_read_, uint8_t{0});
}

uint32_t TiedExchange::PiecesIn(const std::vector<int32_t>& rows) const {
  const size_t of_a_piece = pieces_.shape.tokens;
  return static_cast<uint32_t>((rows.size() + of_a_piece - 1) / of_a_piece);
}

std::span<const int32_t> TiedExchange::RowsOf(const std::vector<int32_t>& rows,
                                              uint32_t piece) const {
  const size_t begin = size_t{piece} * pieces_.shape.tokens;
  return std::span(rows).subspan(begin,
                                 std::min<size_t>(pieces_.shape.tokens, rows.size() - begin));
}

Status TiedExchange::Advance() {
  if (!step_) return absl::OkStatus();
  // The embedding has gradients only in rows of tokens that it has read, the head has them in all.
  const uint32_t to_send = PiecesIn(embedding_ ? read_ : all_);
  const uint32_t to_add = PiecesIn(embedding_ ? all_ : read_);
  while (sent_ < to_send && under_way_ < kPiecesUnderWay) LH_RETURN_IF_ERROR(SendPiece());
  if (!arrived_.empty() && arrived_.rbegin()->first >= to_add) {
    return InvalidArgument(
        "expected {} pieces of the tied matrix's gradient in step {}, got piece {}; "
        "the two ends have read other tokens",
        to_add, step_->value(), arrived_.rbegin()->first);
  }
  // Not before all own pieces are copied: the peer must not get its own gradient back.
  if (sent_ < to_send) return absl::OkStatus();
  for (; !arrived_.empty(); arrived_.erase(arrived_.begin()), ++added_) {
    LH_RETURN_IF_ERROR(AddPiece(arrived_.begin()->second));
  }
  if (added_ == to_add) step_.reset();
  return absl::OkStatus();
}

Status TiedExchange::SendPiece() {
  const std::span<const int32_t> rows = RowsOf(embedding_ ? read_ : all_, sent_);
  auto values = std::make_shared<std::vector<float>>(pieces_.shape.elements());
  LH_RETURN_IF_ERROR(
      matrix_->ReadGradient(rows, std::span(*values).first(rows.size() * matrix_->channels())));
  const codec::TensorView view{values->data(), codec::Dtype::kF32, pieces_.shape};
  ++under_way_;
  // A piece travels as a tensor of a boundary, with its number in the microbatch's place.
  link_.send_piece(*step_, Microbatch(sent_++), {view, std::move(values)});
  return absl::OkStatus();
}

Status TiedExchange::AddPiece(const BoundaryTensor& tensor) {
  const std::span<const int32_t> rows = RowsOf(embedding_ ? all_ : read_, added_);
  return matrix_->AddToGradient(rows, std::span(static_cast<const float*>(tensor.view.data),
                                                rows.size() * matrix_->channels()));
}

void TiedExchange::BeginCheck(const StageSnapshot& snapshot) {
  own_digest_ = DigestOf(snapshot, *matrix_);
  link_.send_digest(Step(snapshot.step), *own_digest_);
}

StatusOr<bool> TiedExchange::IsChecked() {
  if (!peer_digest_) return false;
  if (own_digest_ != std::exchange(peer_digest_, std::nullopt)) {
    return Internal(
        "the two stages that hold {} do not have the same numbers any more; their devices have to "
        "compute alike, so take two of one kind, or `tied: split`",
        matrix_->name());
  }
  return true;
}

Status TiedExchange::CheckStep(std::string_view what, Step came, Step under_way) const {
  if (came == under_way) return absl::OkStatus();
  return InvalidArgument("{} of {} of step {} came while step {} is under way", what,
                         matrix_->name(), came.value(), under_way.value());
}

Status TiedExchange::Take(TensorArrived arrived, Step under_way) {
  LH_RETURN_IF_ERROR(CheckStep("a piece of the gradient", arrived.pass.step, under_way));
  arrived_[arrived.slice.microbatch.value()] = std::move(arrived.tensor);
  return absl::OkStatus();
}

Status TiedExchange::Take(const DigestArrived& arrived, Step under_way) {
  LH_RETURN_IF_ERROR(CheckStep("a digest", arrived.step, under_way));
  peer_digest_ = arrived.digest;
  return absl::OkStatus();
}

}  // namespace longhaul::worker
