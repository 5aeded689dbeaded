// Picks among your own functions: a selector whose answers are places in your array.
//
//     using Launch = void (*)(const Arguments&);
//     const tile_oracle::Solution<Launch> table[] = {
//         {"grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave", launch_64x64x64},
//         {"grouped_conv_forward_bf16_2d_16x64x64_compv3_intrawave", launch_16x64x64},
//     };
//     const tile_oracle::Solutions solutions(tile_oracle::Selector::load("forward_bf16_2d.selector"), table);
//     table[solutions.get_solution(problem)].function(arguments);
//
// The selector's candidates must all be in the array: export the model with --kernels and the array's names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tile_oracle/selector.hpp"

namespace tile_oracle {

/// One element of your array: a kernel's name, and what runs it. Any type may stand for Function.
template <class Function>
struct Solution {
    std::string_view kernel;
    Function function;
};

class Solutions {
public:
    /// `names`: the kernels of your array, in its order. Throws std::runtime_error for a candidate that is
    /// not among them. Names that are no candidates are never picked; of equal names only the first is.
    Solutions(Selector selector, std::span<const std::string_view> names) : selector_(std::move(selector)) {
        std::unordered_map<std::string_view, std::size_t> place_of;
        for (std::size_t place = 0; place < names.size(); ++place) place_of.emplace(names[place], place);
        std::vector<bool> picked(names.size());
        for (std::uint32_t kernel = 0; kernel < selector_.size(); ++kernel) {
            const auto found = place_of.find(selector_.name(kernel));
            if (found == place_of.end())
                throw std::runtime_error("candidate " + selector_.name(kernel) +
                                         " has no solution: export the model with --kernels and your names");
            place_of_.push_back(found->second);
            picked[found->second] = true;
        }
        for (std::size_t place = 0; place < names.size(); ++place)
            if (!picked[place]) never_picked_.push_back(place);
    }

    template <class Function>
    Solutions(Selector selector, std::span<const Solution<Function>> table)
        : Solutions(std::move(selector), names_of(table)) {}

    template <class Function, std::size_t size>
    Solutions(Selector selector, const Solution<Function> (&table)[size])
        : Solutions(std::move(selector), std::span<const Solution<Function>>(table)) {}

    // Any number of threads may call these at the same time. Like Selector's, they throw
    // std::invalid_argument for a problem that cannot be.

    /// The place in your array of the solution with the least predicted time.
    template <class Problem>
    std::size_t get_solution(const Problem& problem) const {
        return place_of_[selector_.pick(problem)];
    }

    /// The same among those for which `supported(place)` is true; it is asked in the order of predicted times
    /// until it says so. Empty where it never does.
    template <class Problem, class Supported>
    std::optional<std::size_t> get_solution(const Problem& problem, Supported&& supported) const {
        const std::size_t first = get_solution(problem);
        if (supported(first)) return first;
        for (const Ranked& ranked : selector_.rank(problem)) {
            const std::size_t place = place_of_[ranked.kernel];
            if (place != first && supported(place)) return place;
        }
        return std::nullopt;
    }

    /// Places of your array that are no candidates.
    std::span<const std::size_t> never_picked() const noexcept { return never_picked_; }
    const Selector& selector() const noexcept { return selector_; }

private:
    Solutions(Selector selector, const std::vector<std::string_view>& names)
        : Solutions(std::move(selector), std::span<const std::string_view>(names)) {}

    template <class Function>
    static std::vector<std::string_view> names_of(std::span<const Solution<Function>> table) {
        std::vector<std::string_view> names;
        for (const auto& solution : table) names.push_back(solution.kernel);
        return names;
    }

    Selector selector_;
    std::vector<std::size_t> place_of_;  // of each candidate
    std::vector<std::size_t> never_picked_;
};

}  // namespace tile_oracle
