// What a port does with training messages so that a run can be verified: digests, evidence, and a
// judgement of what arrives.
#include <utility>

#include "worker/pipeline/boundary_port.h"

namespace longhaul::worker {

void BoundaryPort::RehearseOn(const Outgoing& outgoing) {
  const codec::TensorView& view = outgoing.tensor.view;
  // Only tensors in host memory; those of a GPU are left as they are.
  const bool on_host = options_.tensors_on_host && view.dtype == codec::Dtype::kF32;
  auto* const values = static_cast<float*>(const_cast<void*>(view.data));
  options_.rehearsal->OnTensor(
      outgoing.pass.step, send_direction(),
      on_host ? std::span(values, view.shape.elements()) : std::span<float>());
}

void BoundaryPort::CheckSent(const Outgoing& outgoing) {
  const Step step = outgoing.pass.step;
  const std::span<std::byte> bytes = outgoing.blob.bytes.first(outgoing.blob_bytes);
  if (options_.digests) options_.digests->AddSent(step, bytes);
  if (options_.rehearsal) options_.rehearsal->OnBlob(step, send_direction(), bytes);
  if (options_.keeper) Keep(/*sent=*/true, step, outgoing.slice, bytes, outgoing.blob.owner);
}

void BoundaryPort::CheckReceived(const EncodedTensor& incoming) {
  const Step step = incoming.pass.step;
  const std::span<const std::byte> bytes = incoming.blob.bytes.first(incoming.blob_bytes);
  if (options_.digests) options_.digests->AddReceived(step, bytes);
  if (options_.keeper) Keep(/*sent=*/false, step, incoming.slice, bytes, incoming.blob.owner);
}

void BoundaryPort::DigestWord(bool sent, Step step, wire::StepMessage message) const {
  if (!options_.digests) return;
  message.stop = false;
  message.samples = 0;
  std::array<std::byte, wire::kStepMessageBytes> bytes;
  wire::EncodeStepMessage(message, bytes);
  if (sent) {
    options_.digests->SetSentWord(step, bytes);
  } else {
    options_.digests->SetReceivedWord(step, bytes);
  }
}

void BoundaryPort::Record(const EncodedTensor& incoming) const {
  wire::TensorHeader header = HeaderFor(wire::TensorKind::kChunk, incoming.pass);
  header.direction = receive_direction();
  header.microbatch = incoming.slice.microbatch;
  header.slice = incoming.slice.index;
  header.slices = options_.slices;
  options_.recorder->Add(header, incoming.blob.bytes.first(incoming.blob_bytes));
}

void BoundaryPort::NoteReceived(const EncodedTensor& incoming) {
  EncodedTensor said = incoming;
  if (options_.rehearsal) {
    auto other = options_.rehearsal->OnReceived(incoming.pass.step, receive_direction(),
                                                incoming.blob.bytes.first(incoming.blob_bytes));
    if (other) {
      const auto owner = std::make_shared<std::vector<std::byte>>(*std::move(other));
      said.blob = {.bytes = *owner, .owner = owner};
    }
  }
  CheckReceived(said);
  if (options_.recorder) Record(said);
}

void BoundaryPort::Keep(bool sent, Step step, Slice slice, std::span<const std::byte> bytes,
                        std::shared_ptr<const void> owner) const {
  KeptMessage message{.epoch = options_.epoch,
                      .edge = options_.edge,
                      .direction = sent ? send_direction() : receive_direction(),
                      .sent = sent,
                      .step = step,
                      .slice = slice,
                      .bytes = bytes,
                      .owner = std::move(owner)};
  if (!options_.tensors_on_host) {
    options_.keeper->KeepCopy(std::move(message), options_.keep_bytes);
  } else {
    options_.keeper->Keep(std::move(message), options_.keep_bytes);
  }
}

void BoundaryPort::Judge(const EncodedTensor& incoming, const BoundaryTensor& tensor) {
  const codec::Shape& shape = tensor.view.shape;
  const std::vector<size_t> rows =
      options_.plausibility->DrawRows(size_t{shape.samples} * shape.tokens);
  StatusOr<std::vector<float>> values = RunnerOf(incoming.pass).CopyRows(tensor.view, rows);
  if (!values.ok()) {
    events_->Push(Failed{Annotate(values.status(), "looking at what was received")});
    return;
  }
  std::optional<std::string> what = options_.plausibility->Judge(*values, shape.channels);
  if (!what) return;
  events_->Push(TensorDoubted{.pass = incoming.pass,
                              .slice = incoming.slice,
                              .edge = options_.edge,
                              .direction = receive_direction(),
                              .what = *std::move(what)});
}

std::vector<v1::EdgeDigests> BoundaryPort::TakeDigests(Step step) {
  if (!options_.digests) return {};
  return {EdgeDigestsOf(options_.edge, send_direction(), /*sent=*/true,
                        options_.digests->TakeSent(step)),
          EdgeDigestsOf(options_.edge, receive_direction(), /*sent=*/false,
                        options_.digests->TakeReceived(step))};
}

}  // namespace longhaul::worker
