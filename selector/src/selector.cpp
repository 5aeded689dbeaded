#include "tile_oracle/selector.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "network.hpp"
#include "tile_oracle/byte_reader.hpp"
#include "tile_oracle/exact_math.hpp"
#include "tile_oracle/program.hpp"
#include "tile_oracle/scorer.hpp"

namespace tile_oracle {
namespace {

constexpr std::string_view magic = "tile-oracle selector 3\n";
constexpr double least_ms = 1e-6;        // LEAST_MS of harness/tile_oracle/model/physics.py
constexpr double least_quantity = 1e-9;  // LEAST_QUANTITY of harness/tile_oracle/model/trees.py
constexpr double most_log_time = 50.0;   // MOST_LOG_TIME of harness/tile_oracle/model/ranker.py
constexpr std::uint32_t most_candidates = 1u << 24;

template <class Result>
void each_lane(double* values, std::size_t count, Result&& result) {
    alignas(32) double four[lanes::count];
    std::size_t i = 0;
    for (; i + lanes::count <= count; i += lanes::count) lanes::store(values + i, result(lanes::load(values + i)));
    if (i == count) return;
    for (std::size_t k = 0; k < lanes::count; ++k) four[k] = i + k < count ? values[i + k] : 1.0;
    lanes::store(four, result(lanes::load(four)));
    for (std::size_t k = 0; i + k < count; ++k) values[i + k] = four[k];
}

/// Whether this file was compiled so that a product and a sum are rounded once, which no answer may depend on.
bool contracts() {
    volatile double x = 1.0 + 0x1p-30, minus_square = -(1.0 + 0x1p-29);
    return x * x + minus_square != 0.0;
}

double exact_log(double x) { return exact::log(lanes::splat(x))[0]; }
double exact_exp(double x) { return exact::exp(lanes::splat(x))[0]; }

/// What the trees' sum says; see log_time_of in harness/tile_oracle/model/trees.py.
enum class Says : std::uint32_t { log_time, negative_log_time, latency, tflops, bandwidth };

struct TreeMember {
    Says says;
    bool logged;
    std::uint32_t n_rows;
    std::vector<Column> columns;
    std::unique_ptr<const Scorer> scorer;

    TreeMember(ByteReader& from, const Program& program) {
        const std::uint32_t number = from.u32();
        if (number > static_cast<std::uint32_t>(Says::bandwidth)) throw BadSelector("a target is unknown");
        says = static_cast<Says>(number);
        logged = from.u32() != 0;
        n_rows = from.u32();
        if (n_rows == 0 || n_rows > most_candidates) throw BadSelector("a member has no rows");
        const std::uint32_t n_features = from.length(16);
        columns.reserve(n_features);
        for (std::uint32_t i = 0; i < n_features; ++i) columns.emplace_back(from, program, n_rows);
        std::vector<std::shared_ptr<const Forest>> forests;
        std::string error;
        for (std::uint32_t n = from.length(4); n > 0; --n) {
            const auto bytes = from.data();
            forests.push_back(Forest::read(bytes.data(), bytes.size(), error));
            if (!forests.back()) throw BadSelector(error);
            if (forests.back()->n_features != n_features)
                throw BadSelector("a forest and its columns are of different models");
        }
        if (forests.empty()) throw BadSelector("a member has no trees");
        std::vector<FeatureSource> sources;
        for (const Column& column : columns)
            sources.push_back({column.kind, column.count, column.class_of.data(),
                               column.kind == FeatureKind::kernel ? program.value(column.operand, nullptr) : nullptr});
        scorer = Scorer::make(std::move(forests), n_rows, sources, Isa::best, error);
        if (!scorer) throw BadSelector(error);
        for (Column& column : columns) {
            column.class_of.clear();  // the scorer has what it needs
            column.class_of.shrink_to_fit();
        }
    }
};

struct PhysicalMember {
    std::uint32_t n_rows;
    std::vector<Column> terms;
    std::vector<double> coefficients;  // of each term, one a row

    PhysicalMember(ByteReader& from, const Program& program) {
        n_rows = from.u32();
        if (n_rows == 0 || n_rows > most_candidates) throw BadSelector("the time model has no rows");
        const std::uint32_t n_terms = from.length(16);
        terms.reserve(n_terms);
        for (std::uint32_t i = 0; i < n_terms; ++i) terms.emplace_back(from, program, n_rows);
        coefficients = from.f64s();
        if (coefficients.size() != std::size_t(n_terms) * n_rows)
            throw BadSelector("the time model lacks coefficients");
    }

    void log_times(const Program& program, const double* memory, double* out) const {
        std::fill_n(out, n_rows, 0.0);
        const double* coefficient = coefficients.data();
        for (const Column& term : terms) {
            const double* values = program.value(term.operand, memory);
            if (term.class_of.empty())
                for (std::uint32_t row = 0; row < n_rows; ++row) out[row] += *values * coefficient[row];
            else
                for (std::uint32_t row = 0; row < n_rows; ++row)
                    out[row] += values[term.class_of[row]] * coefficient[row];
            coefficient += n_rows;
        }
        each_lane(out, n_rows, [](lanes::Doubles time_ms) {
            return exact::log(lanes::maximum(time_ms, lanes::splat(least_ms)));
        });
    }
};

/// The mean of some networks, which corrects a column.
struct NetworkMember {
    std::uint32_t n_rows;
    std::vector<Column> prior;  // one, or none
    std::vector<Network> networks;

    NetworkMember(ByteReader& from, const Program& program, std::uint32_t count) {
        n_rows = from.u32();
        for (std::uint32_t n = from.length(16); n > 0; --n) prior.emplace_back(from, program, n_rows);
        for (std::uint32_t i = 0; i < count; ++i) {
            networks.emplace_back(from, program);
            if (networks.back().n_rows != n_rows) throw BadSelector("networks are of different rows");
        }
        if (n_rows == 0 || prior.size() > 1) throw BadSelector("networks correct one column");
    }

    /// Of these rows; those of the others are of no use.
    void log_times(const Program& program, const double* memory, std::span<const std::uint32_t> rows,
                   Aligned<float>& work, double* out) const {
        std::fill_n(out, n_rows, 0.0);
        for (const Network& one : networks) one.scores(program, memory, rows, work, out);
        for (std::uint32_t row = 0; row < n_rows; ++row) out[row] /= double(networks.size());
        for (const Column& one : prior) {
            const double* values = program.value(one.operand, memory);
            for (std::uint32_t row = 0; row < n_rows; ++row)
                out[row] += values[one.class_of.empty() ? 0 : one.class_of[row]];
        }
    }

    template <class Use>
    void each_column(Use&& use) const {
        for (const Column& one : prior) use(one);
        for (const Network& network : networks) {
            for (const Column& one : network.of_problem) use(one);
            for (const Column& one : network.joint) use(one);
        }
    }
};

/// A member as the ranker adds it up: trees, the time model, both, or the networks.
struct Member {
    static constexpr std::uint32_t none = ~0u;
    std::uint32_t trees;  // number of the tree member, or none
    bool physical;        // the time model's ln(time) is part of it
    bool network;         // it is the networks
    std::vector<std::uint32_t> tree_row_of, physical_row_of, network_row_of;  // of each distinct kernel
};

enum class Level : std::uint32_t { as_it_is, least_is_zero, mean_of_absolute };

/// Where a thread computes; grows to the largest selector that it has used.
struct Workspace {
    std::vector<double> memory, raw, physical, network, constants, score, kernel_log_time;
    Aligned<float> of_network;
    std::vector<std::vector<double>> trees, members;
    std::vector<const double*> class_values;
    std::vector<std::pair<double, std::uint32_t>> order;
    std::vector<std::uint32_t> rows;
};

Workspace& workspace() {
    static thread_local Workspace one;
    return one;
}

double* sized(std::vector<double>& values, std::size_t size) {
    if (values.size() < size) values.resize(size);
    return values.data();
}

/// The fields of the problems that values_of reads. Problems of other operations come as values alone.
bool has_its_fields(const std::string& operation, const std::vector<std::string>& fields) {
    static const std::map<std::string, std::vector<std::string>> known{
        {"grouped_conv",
         {"N", "C", "K", "G", "Hi", "Wi", "Y", "X", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h",
          "dilation_w", "Di", "Z", "stride_d", "pad_d", "dilation_d"}},
        {"gemm", {"M", "N", "K", "split_k"}},
        {"attention", {"batch", "heads", "kv_heads", "seq_q", "seq_kv"}},
    };
    const auto found = known.find(operation);
    return !fields.empty() && (found == known.end() || found->second == fields);
}

}  // namespace

struct Selector::Loaded {
    std::string operation, kind, arch;
    std::vector<std::string> fields, names;
    std::optional<Program> program;
    std::uint32_t flops, bytes;
    std::vector<TreeMember> trees;
    std::optional<PhysicalMember> physical;
    std::optional<NetworkMember> network;
    std::vector<Member> members;
    std::vector<std::uint32_t> weighed;  // members, in the order in which they are added
    std::vector<double> weights;
    Level level;
    std::vector<std::uint32_t> absolute;
    std::uint32_t n_distinct;
    std::vector<std::uint32_t> distinct_of;  // of each candidate
    std::vector<double> offsets;             // of each candidate, or none
    std::vector<std::uint32_t> all;          // candidates

    explicit Loaded(ByteReader from) {
        operation = from.text();
        kind = from.text();
        arch = from.text();
        fields = from.texts();
        if (!has_its_fields(operation, fields)) throw BadSelector("the problem's fields are not those of " + operation);
        names = from.texts();
        if (names.empty() || names.size() > most_candidates) throw BadSelector("it has no candidates");
        program.emplace(from);
        if (program->n_inputs() != fields.size()) throw BadSelector("program and fields differ");
        flops = one_value(from);
        bytes = one_value(from);
        for (std::uint32_t n = from.length(20); n > 0; --n) trees.emplace_back(from, *program);
        if (from.u32() != 0) physical.emplace(from, *program);
        if (const std::uint32_t count = from.u32(); count != 0) network.emplace(from, *program, count);
        n_distinct = from.u32();
        if (n_distinct == 0 || n_distinct > most_candidates) throw BadSelector("it has no kernels");
        for (std::uint32_t n = from.length(16); n > 0; --n) members.push_back(member(from));
        weighed = from.u32s();
        weights = from.f64s();
        level = static_cast<Level>(from.u32());
        absolute = from.u32s();
        distinct_of = from.u32s();
        offsets = from.f64s();
        from.expect_end();
        all.resize(names.size());
        std::iota(all.begin(), all.end(), 0u);
        const auto under = [](const auto& values, std::size_t end) {
            return std::all_of(values.begin(), values.end(), [&](auto v) { return v < end; });
        };
        if (weighed.empty() || weighed.size() != weights.size() || !under(weighed, members.size()) ||
            !under(absolute, members.size()) || level > Level::mean_of_absolute ||
            (level == Level::mean_of_absolute && absolute.empty()) || distinct_of.size() != names.size() ||
            !under(distinct_of, n_distinct) || (!offsets.empty() && offsets.size() != names.size()))
            throw BadSelector("its members cannot be added up");
    }

    /// ln(time) of the distinct kernels of these candidates, in the thread's workspace.
    const double* distinct_log_times(const double* values, std::span<const std::uint32_t> among) const {
        Workspace& w = workspace();
        double* memory = sized(w.memory, program->memory_size());
        std::copy_n(values, fields.size(), memory);
        program->run(memory);
        check_finite(memory);
        if (w.trees.size() < trees.size()) w.trees.resize(trees.size());
        for (std::size_t i = 0; i < trees.size(); ++i) tree_scores(trees[i], memory, w, w.trees[i]);
        if (physical) physical->log_times(*program, memory, sized(w.physical, physical->n_rows));
        if (network) {
            for (const Member& one : members)
                if (one.network) rows_of(one, among, w.rows);
            network->log_times(*program, memory, w.rows, w.of_network, sized(w.network, network->n_rows));
        }
        if (w.members.size() < members.size()) w.members.resize(members.size());
        for (std::size_t i = 0; i < members.size(); ++i) member_scores(members[i], w, sized(w.members[i], n_distinct));
        double* score = sized(w.score, n_distinct);
        std::fill_n(score, n_distinct, 0.0);
        for (std::size_t i = 0; i < weighed.size(); ++i) {
            const double* one = w.members[weighed[i]].data();
            for (std::uint32_t k = 0; k < n_distinct; ++k) score[k] += weights[i] * one[k];
        }
        put_at_level(w, score, among);
        return score;
    }

    template <class Use>
    void each_log_time(const double* values, std::span<const std::uint32_t> among, Use&& use) const {
        const double* score = distinct_log_times(values, among);
        if (offsets.empty())
            for (const std::uint32_t i : among) use(i, score[distinct_of[i]]);
        else
            for (const std::uint32_t i : among) use(i, score[distinct_of[i]] + offsets[i]);
    }

    /// Floating-point operations of the problem that this thread asked about last.
    double last_flops() const { return *program->value(flops, workspace().memory.data()); }

    static double tflops_of(double flops, double log_time) {
        const double inside = std::min(std::max(log_time, -most_log_time), most_log_time);
        return flops / (exact_exp(inside) * 1e9);
    }

private:
    std::uint32_t one_value(ByteReader& from) const {
        const std::uint32_t operand = from.u32();
        program->check(operand, 1);
        return operand;
    }

    Member member(ByteReader& from) const {
        Member one{from.u32(), from.u32() != 0, from.u32() != 0, from.u32s(), from.u32s(), from.u32s()};
        const auto rows = [&](const std::vector<std::uint32_t>& row_of, std::uint32_t n_rows) {
            return row_of.size() == n_distinct &&
                   std::all_of(row_of.begin(), row_of.end(), [&](auto r) { return r < n_rows; });
        };
        bool good = (one.trees != Member::none || one.physical) != one.network;
        if (one.trees != Member::none)
            good = good && one.trees < trees.size() && rows(one.tree_row_of, trees[one.trees].n_rows);
        if (one.physical) good = good && physical && rows(one.physical_row_of, physical->n_rows);
        if (one.network) good = good && network && rows(one.network_row_of, network->n_rows);
        if (!good) throw BadSelector("a member cannot be right");
        return one;
    }

    /// The network's rows of these candidates, each once.
    void rows_of(const Member& one, std::span<const std::uint32_t> among, std::vector<std::uint32_t>& rows) const {
        rows.clear();
        for (const std::uint32_t i : among) rows.push_back(one.network_row_of[distinct_of[i]]);
        if (offsets.empty() && rows.size() == network->n_rows) return;
        std::sort(rows.begin(), rows.end());
        rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    }

    void check_finite(const double* memory) const {
        double sum = 0.0;  // 0 unless some value is not finite
        const auto add = [&](const Column& column) {
            const double* values = program->value(column.operand, memory);
            for (std::uint32_t i = 0; i < column.count; ++i) sum += values[i] * 0.0;
        };
        for (const TreeMember& one : trees)
            for (const Column& column : one.columns)
                if (column.kind != FeatureKind::kernel) add(column);
        if (physical)
            for (const Column& column : physical->terms) add(column);
        if (network) network->each_column(add);
        if (!(sum == 0.0)) throw std::invalid_argument("features of the problem are not finite: it holds values out of range");
    }

    void tree_scores(const TreeMember& one, const double* memory, Workspace& w, std::vector<double>& to) const {
        double* constants = sized(w.constants, one.columns.size());
        if (w.class_values.size() < one.columns.size()) w.class_values.resize(one.columns.size());
        for (std::size_t i = 0; i < one.columns.size(); ++i) {
            const double* values = program->value(one.columns[i].operand, memory);
            constants[i] = *values;
            w.class_values[i] = values;
        }
        const std::uint32_t n = one.n_rows, n_forests = one.scorer->n_forests();
        double* raw = sized(w.raw, std::size_t(n) * n_forests);
        if (!one.scorer->score(constants, w.class_values.data(), raw)) throw std::bad_alloc();
        double* score = sized(to, n);
        std::fill_n(score, n, 0.0);
        for (std::uint32_t forest = 0; forest < n_forests; ++forest)
            for (std::uint32_t row = 0; row < n; ++row) score[row] += raw[std::size_t(forest) * n + row];
        for (std::uint32_t row = 0; row < n; ++row) score[row] /= n_forests;
        in_log_time(one, memory, score);
    }

    void in_log_time(const TreeMember& one, const double* memory, double* score) const {
        using lanes::Doubles, lanes::splat;
        if (one.says == Says::log_time) return;
        if (one.says == Says::negative_log_time) {
            for (std::uint32_t row = 0; row < one.n_rows; ++row) score[row] = -score[row];
            return;
        }
        const auto value = [&](Doubles raw) {
            return lanes::maximum(one.logged ? exact::expm1(raw) : raw, splat(least_quantity));
        };
        if (one.says == Says::latency) {
            each_lane(score, one.n_rows, [&](Doubles raw) { return exact::log(value(raw)); });
            return;
        }
        const bool by_flops = one.says == Says::tflops;
        const Doubles work = splat(exact_log(*program->value(by_flops ? flops : bytes, memory)));
        const Doubles unit = splat(by_flops ? 1e9 : 1e6);
        each_lane(score, one.n_rows, [&](Doubles raw) { return work - exact::log(value(raw) * unit); });
    }

    void member_scores(const Member& one, const Workspace& w, double* out) const {
        if (one.network) {
            for (std::uint32_t k = 0; k < n_distinct; ++k) out[k] = w.network[one.network_row_of[k]];
            return;
        }
        if (one.trees == Member::none) {
            for (std::uint32_t k = 0; k < n_distinct; ++k) out[k] = w.physical[one.physical_row_of[k]];
            return;
        }
        const double* trees_say = w.trees[one.trees].data();
        if (one.physical)
            for (std::uint32_t k = 0; k < n_distinct; ++k)
                out[k] = w.physical[one.physical_row_of[k]] + trees_say[one.tree_row_of[k]];
        else
            for (std::uint32_t k = 0; k < n_distinct; ++k) out[k] = trees_say[one.tree_row_of[k]];
    }

    /// Where only the order is predicted, the candidates' level; over candidates, as Ranker.log_time does.
    void put_at_level(Workspace& w, double* score, std::span<const std::uint32_t> among) const {
        if (level == Level::as_it_is) return;
        double shift = 0.0;
        if (level == Level::least_is_zero) {
            double least = std::numeric_limits<double>::infinity();
            for (const std::uint32_t i : among) least = std::min(least, score[distinct_of[i]]);
            for (std::uint32_t k = 0; k < n_distinct; ++k) score[k] -= least;
            return;
        }
        double* mean = sized(w.kernel_log_time, n_distinct);
        std::fill_n(mean, n_distinct, 0.0);
        for (const std::uint32_t i : absolute)
            for (std::uint32_t k = 0; k < n_distinct; ++k) mean[k] += w.members[i][k];
        for (std::uint32_t k = 0; k < n_distinct; ++k) mean[k] = mean[k] / double(absolute.size()) - score[k];
        for (const std::uint32_t i : among) shift += mean[distinct_of[i]];
        shift /= double(among.size());
        for (std::uint32_t k = 0; k < n_distinct; ++k) score[k] += shift;
    }
};

namespace {

void want(bool good, const char* what) {
    if (!good) throw std::invalid_argument(what);
}

/// The values of fields, of which those of padding may be 0.
template <std::size_t count>
ProblemValues extents(const Selector& selector, const std::int64_t (&all)[count]) {
    ProblemValues values{{}, count};
    for (std::size_t i = 0; i < count; ++i) {
        want(all[i] >= (selector.fields()[i].starts_with("pad") ? 0 : 1) &&
                 all[i] <= std::numeric_limits<std::int32_t>::max(),
             "a problem's field is not from 1 (padding: 0) to 2^31 - 1");
        values.at[i] = static_cast<double>(all[i]);
    }
    return values;
}

}  // namespace

ProblemValues Selector::values_of(const GroupedConvProblem& p) const {
    want(operation() == "grouped_conv", "this selector is not for convolutions");
    const ProblemValues values =
        extents(*this, {p.N, p.C, p.K, p.G, p.Hi, p.Wi, p.Y, p.X, p.stride_h, p.stride_w, p.pad_h, p.pad_w, p.dilation_h,
                        p.dilation_w, p.Di, p.Z, p.stride_d, p.pad_d, p.dilation_d});
    want(p.C % p.G == 0 && p.K % p.G == 0, "G must divide C and K, which count the channels of all groups");
    const bool flat = p.Di == 1 && p.Z == 1 && p.stride_d == 1 && p.pad_d == 0 && p.dilation_d == 1;
    want(flat || !kind().ends_with("2D"), "this selector is for 2D: leave the fields of depth as they are");
    const auto fits = [](std::int64_t extent, std::int64_t filter, std::int64_t pad, std::int64_t dilation) {
        return extent + 2 * pad >= (filter - 1) * dilation + 1;
    };
    want(fits(p.Hi, p.Y, p.pad_h, p.dilation_h) && fits(p.Wi, p.X, p.pad_w, p.dilation_w) &&
             fits(p.Di, p.Z, p.pad_d, p.dilation_d),
         "the dilated filter is larger than the padded input");
    return values;
}

ProblemValues Selector::values_of(const GemmProblem& p) const {
    want(operation() == "gemm", "this selector is not for GEMM");
    want(p.split_k <= p.K, "split_k is more parts than K has elements");
    return extents(*this, {p.M, p.N, p.K, p.split_k});
}

ProblemValues Selector::values_of(const AttentionProblem& p) const {
    want(operation() == "attention", "this selector is not for attention");
    want(p.kv_heads > 0 && p.heads % p.kv_heads == 0, "heads is no multiple of kv_heads");
    return extents(*this, {p.batch, p.heads, p.kv_heads, p.seq_q, p.seq_kv});
}

Selector::Selector(std::shared_ptr<const Loaded> loaded) noexcept : loaded_(std::move(loaded)) {}

Selector Selector::read(std::span<const std::byte> bytes) {
    if (contracts()) throw std::runtime_error("tile_oracle must be compiled with -ffp-contract=off");
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!text.starts_with(magic)) throw BadSelector("it does not begin as one of this version");
    const std::size_t start = (magic.size() + 3) / 4 * 4;
    if (bytes.size() < start) throw BadSelector("it ends too early");
    return Selector(std::make_shared<const Loaded>(ByteReader(bytes.subspan(start))));
}

Selector Selector::load(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file && bytes.empty()) throw std::runtime_error(path + ": cannot be read");
    try {
        return read(std::as_bytes(std::span(bytes)));
    } catch (const BadSelector& error) {
        throw std::runtime_error(path + ": " + error.what());
    }
}

std::uint32_t Selector::size() const noexcept { return static_cast<std::uint32_t>(loaded_->names.size()); }
const std::string& Selector::name(std::uint32_t kernel) const { return loaded_->names.at(kernel); }
const std::string& Selector::operation() const noexcept { return loaded_->operation; }
const std::string& Selector::kind() const noexcept { return loaded_->kind; }
const std::string& Selector::arch() const noexcept { return loaded_->arch; }
std::span<const std::string> Selector::fields() const noexcept { return loaded_->fields; }

std::size_t Selector::memory_bytes() const noexcept {
    std::size_t total = sizeof *loaded_ + loaded_->program->bytes();
    for (const TreeMember& one : loaded_->trees) total += one.scorer->memory_bytes();
    const auto columns = [&](const std::vector<Column>& listed) {
        for (const Column& one : listed) total += sizeof one + one.bytes();
    };
    for (const TreeMember& one : loaded_->trees) columns(one.columns);
    if (loaded_->physical) {
        columns(loaded_->physical->terms);
        total += loaded_->physical->coefficients.capacity() * sizeof(double);
    }
    if (loaded_->network)
        for (const Network& one : loaded_->network->networks) total += one.bytes();
    for (const Member& one : loaded_->members)
        total += (one.tree_row_of.capacity() + one.physical_row_of.capacity() + one.network_row_of.capacity()) *
                 sizeof(std::uint32_t);
    for (const std::string& name : loaded_->names) total += sizeof name + name.capacity();
    return total + loaded_->distinct_of.capacity() * sizeof(std::uint32_t) +
           loaded_->offsets.capacity() * sizeof(double);
}

std::uint32_t Selector::pick(std::span<const double> values) const {
    want(values.size() == loaded_->fields.size(), "a problem has one value for each of its fields");
    std::uint32_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    loaded_->each_log_time(values.data(), loaded_->all, [&](std::uint32_t kernel, double log_time) {
        if (log_time < least) {
            least = log_time;
            best = kernel;
        }
    });
    return best;
}

void Selector::log_times(std::span<const double> values, std::span<double> out) const {
    want(values.size() == loaded_->fields.size(), "a problem has one value for each of its fields");
    want(out.size() == size(), "there must be room for one value a candidate");
    loaded_->each_log_time(values.data(), loaded_->all,
                           [&](std::uint32_t kernel, double log_time) { out[kernel] = log_time; });
}

void Selector::tflops(std::span<const double> values, std::span<const std::uint32_t> among,
                      std::span<double> out) const {
    want(values.size() == loaded_->fields.size(), "a problem has one value for each of its fields");
    want(out.size() == among.size(), "there must be room for one value a candidate");
    want(!among.empty() && std::all_of(among.begin(), among.end(), [&](auto one) { return one < size(); }),
         "a candidate's number is not that of one");
    std::size_t place = 0;
    loaded_->each_log_time(values.data(), among, [&](std::uint32_t, double log_time) { out[place++] = log_time; });
    const double flops = loaded_->last_flops();
    for (double& value : out) value = Loaded::tflops_of(flops, value);
}

void Selector::tflops(std::span<const double> values, std::span<double> out) const {
    log_times(values, out);
    const double flops = loaded_->last_flops();
    for (double& value : out) value = Loaded::tflops_of(flops, value);
}

std::vector<Ranked> Selector::rank(std::span<const double> values, std::uint32_t k) const {
    want(values.size() == loaded_->fields.size(), "a problem has one value for each of its fields");
    if (k == 0 || k > size()) k = size();
    auto& order = workspace().order;  // of equal times the first candidate is less
    order.resize(size());
    loaded_->each_log_time(values.data(), loaded_->all, [&](std::uint32_t kernel, double log_time) {
        order[kernel] = {log_time, kernel};
    });
    if (k < size()) std::nth_element(order.begin(), order.begin() + k, order.end());
    std::sort(order.begin(), order.begin() + k);
    const double flops = loaded_->last_flops();
    std::vector<Ranked> found(k);
    for (std::uint32_t i = 0; i < k; ++i) found[i] = {order[i].second, Loaded::tflops_of(flops, order[i].first)};
    return found;
}

}  // namespace tile_oracle
