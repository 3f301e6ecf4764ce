#include "codec/predict/context.h"

namespace longhaul::codec::predict {
namespace {

std::string_view Describe(Kind kind) {
  switch (kind) {
    case Kind::kPlain:
      return "without ids";
    case Kind::kPredicted:
      return "that is predicted and teaches nothing";
    case Kind::kLearned:
      return "that is predicted and teaches";
  }
  return "of no kind";
}

}  // namespace

Status CheckShapeOf(const TablesShape& tables, const Params& params, const Shape& shape) {
  const TablesShape needed{tables.vocabulary, shape.channels, params.pairs()};
  if (tables == needed) return absl::OkStatus();
  return InvalidArgument("expected tables of {} channels and {} pairs, got {} and {}",
                         needed.channels, needed.pairs, tables.channels, tables.pairs);
}

Status CheckContext(const Context& context, const TablesShape* tables, const Params& params,
                    const Shape& shape, bool decodes) {
  const uint64_t tokens = uint64_t{shape.samples} * shape.tokens;
  if (tables == nullptr) {
    if (context.token_ids.empty() && !context.learns) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "predict needs Context.tables where tokens have ids or teach; there are none");
  }
  LH_RETURN_IF_ERROR(CheckShapeOf(*tables, params, shape));
  if (decodes && context.token_ids.empty()) return absl::OkStatus();
  if (context.token_ids.size() != tokens) {
    return InvalidArgument("predict needs the ids of {} tokens with Context.tables; {} came",
                           tokens, context.token_ids.size());
  }
  return CheckIds(context.token_ids, tables->vocabulary);
}

Front ExpectedFront(const TablesShape* tables, bool learns, uint64_t check) {
  if (tables == nullptr) return {};
  return {.check = check,
          .kind = learns ? Kind::kLearned : Kind::kPredicted,
          .id_bytes = BytesOfId(tables->vocabulary)};
}

Status CheckFront(const Front& front, const Front& expected) {
  if (front.kind != expected.kind) {
    return InvalidArgument("expected a tensor {}; one {} came", Describe(expected.kind),
                           Describe(front.kind));
  }
  if (front.id_bytes != expected.id_bytes) {
    return InvalidArgument("expected ids of {} bytes, as the vocabulary has them; {} came",
                           expected.id_bytes, front.id_bytes);
  }
  if (front.check == expected.check) return absl::OkStatus();
  return InvalidArgument(
      "the two sides' tables of tokens differ: expected the checksum {:016x}, got "
      "{:016x}; go on from a checkpoint",
      expected.check, front.check);
}

Status CheckIds(std::span<const uint32_t> ids, uint32_t vocabulary) {
  for (const uint32_t id : ids) {
    if (id < vocabulary) continue;
    return InvalidArgument("expected ids below {}; {} came", vocabulary, id);
  }
  return absl::OkStatus();
}

Context ContextWithin(const Context& context) {
  Context within = context;
  within.token_ids = {};
  within.tables = nullptr;
  within.learns = false;
  return within;
}

}  // namespace longhaul::codec::predict
