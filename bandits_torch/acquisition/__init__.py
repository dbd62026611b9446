"""BoTorch acquisition functions over models that change with time. BoTorch's own EI, PI and others work too.

    symbol     in code                 meaning                                                     used by
    mu, sigma  model.posterior         posterior mean and standard deviation of the model          all
    X, q       X                       t_batch x q x d points, or x 1 indices of arms              all
    S, P       model.batch_shape       replicates and candidate priors                             all
    N          num_arms                number of arms                                              over arms
    t          num_observations + 1    step at which a Width is evaluated                          UCB
    width      width                   number that multiplies sigma; BoTorch's beta is its square  UCB, draws
    v_t        width                   its name in GP-TS                                           draws
    p          surviving, log_weights  a candidate prior                                           over priors
    m          X_pending               points chosen and not yet observed, m x d                   all
    M, delta   draws, delta            number of draws; failure probability of a step              SimultaneousBand
    phi, w     features, root          features of the prior, and weights of a draw                pathwise draws
    e, lambda  noise_variance          draw of the noise, and its variance                         pathwise draws
    D_t, T     step, until             grid of GP-TS at step t, and the last step it changes       GridSearch
    R          root                    of draws mu + R z, z standard normal                        draws
    d          interval                time between the rewards of the future                      predictive draws
    B, L_j     lipschitz = B L_j       RKHS norm; largest deviation of a partial derivative        GridSearch

Each class states its source. An index policy builds a new acquisition function at every step, with a ``StepContext``
if the class has ``at_step``.
"""

from bandits_torch.acquisition.over_priors import (
    BayesianOverPriors,
    LikeliestPrior,
    OptimisticOverPriors,
    OverPriors,
)
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.acquisition.step_context import StepContext
from bandits_torch.acquisition.thompson_sampling import (
    PathwisePointDraw,
    PathwiseThompsonSampling,
    PlayingProbability,
    PredictiveSampling,
    ThompsonSampling,
)
from bandits_torch.acquisition.upper_confidence_bound import (
    DualMixtureBound,
    SimultaneousBand,
    UpperConfidenceBound,
    qUpperConfidenceBound,
)

__all__ = [
    "BayesianOverPriors",
    "DualMixtureBound",
    "LikeliestPrior",
    "OptimisticOverPriors",
    "OverPriors",
    "PathwisePointDraw",
    "PathwiseThompsonSampling",
    "PlayingProbability",
    "PointSearch",
    "PredictiveSampling",
    "SimultaneousBand",
    "StepContext",
    "ThompsonSampling",
    "UpperConfidenceBound",
    "qUpperConfidenceBound",
]
