#include "coordinator/standby/witness_lines.h"

#include <utility>

#include "base/log.h"
#include "proto/rpc/status.h"
#include "proto/witness/wire.h"

namespace longhaul::coordinator {
namespace {

// Unanswered requests on a stream. They fit into what gRPC sends without the peer's consent, so a
// request never waits for a witness that does not read.
constexpr size_t kMostUnanswered = 64;

}  // namespace

WitnessLines::WitnessLines(Admit admit, Handler handler)
    : admit_(std::move(admit)), handler_(std::move(handler)) {}

void WitnessLines::Register(grpc::ServerBuilder* builder) {
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->RegisterService(this);
}

grpc::Status WitnessLines::Witness(grpc::ServerContext* context, Stream* stream) {
  const StatusOr<std::string> name = admit_(*context);
  if (!name.ok()) return ToGrpc(name.status());
  v1::WitnessSays says;
  if (!stream->Read(&says) || !says.has_hello()) {
    return ToGrpc(absl::InvalidArgumentError("a witness begins with hello"));
  }
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return ToGrpc(absl::UnavailableError("the coordinator is shutting down"));
    // It dialled again, so the stream before is gone, even if this machine has not noticed.
    if (context_ != nullptr) context_->TryCancel();
    newest_ = stream;
    context_ = context;
    accepted_ = false;
    unanswered_ = 0;
  }
  Status end;
  {
    const std::lock_guard handling(handling_);
    {
      const std::lock_guard lock(mutex_);
      accepted_ = newest_ == stream;
    }
    end = handler_.on_hello(*name, witness::FromProto(says.hello().record()));
  }
  while (end.ok() && stream->Read(&says)) {
    if (!says.has_answer()) {
      end = absl::InvalidArgumentError("a witness says hello once, and then answers");
      break;
    }
    const std::lock_guard handling(handling_);
    {
      const std::lock_guard lock(mutex_);
      if (newest_ != stream) break;
      if (unanswered_ > 0) --unanswered_;
    }
    handler_.on_answer(says.answer());
  }
  const std::lock_guard lock(mutex_);
  if (newest_ == stream) {
    newest_ = nullptr;
    context_ = nullptr;
    accepted_ = false;
  }
  return ToGrpc(end);
}

bool WitnessLines::Ask(const witness::Request& request) {
  v1::WitnessAsked asked = witness::ToProto(request);
  const std::lock_guard lock(mutex_);
  if (newest_ == nullptr || !accepted_ || unanswered_ >= kMostUnanswered) return false;
  asked.set_request(++last_request_);
  ++unanswered_;
  return newest_->Write(asked);
}

bool WitnessLines::open() const {
  const std::lock_guard lock(mutex_);
  return accepted_;
}

void WitnessLines::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

}  // namespace longhaul::coordinator
