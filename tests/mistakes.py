"""Mistakes for tests/test_mutations.py to plant in the modules: (what stands there, the mistake), each a real one.

What stands there occurs once in the module. WATCH lists the tests that look at a module, the likeliest first.
"""

WATCH = {
    'methods': ['losses', 'training', 'methods'],
    'vae': ['losses', 'training'],
    'rbvae': ['losses', 'training'],
    'srbvae': ['losses', 'training', 'methods'],
    'baselines': ['oracles', 'losses', 'training'],
    'training': ['training', 'methods', 'losses'],
    'probing': ['probing'],
    'attributes': ['attributes'],
    'networks': ['training', 'methods', 'speed', 'losses'],
}
MISTAKES = {
    'methods': [
        ('scale / 8 ** k)', 'scale / 4 ** k)'),
        ('range(1, levels + 1)', 'range(1, levels)'),
        ('F.avg_pool2d(mean, 2)', 'F.max_pool2d(mean, 2)'),
        ('return sample_gaussian(*self)', 'return self.mean'),
        ('gaussian_kl(*self)', 'gaussian_kl(self.mean, self.logvar / 2)'),
        ('gaussian_log_density(value, *self)', 'gaussian_log_density(value.detach(), *self)'),
        ('self.laplace_scale, self.pyramid).mean()', 'self.laplace_scale, 0).mean()'),
        ('self.pyramid).mean()', 'self.pyramid).sum()'),
        ('[code].mean.float()', '[code].sample().float()'),
        ('(codes[code].to', '(codes.pop(next(iter(codes))).to'),  # in the order given, not by name
        ('torch.randn(n, getattr', 'torch.rand(n, getattr'),
        ("return defaults | cls.presets[name]['model']", "return cls.presets[name]['model'] | defaults"),
        ("['recipe'], seed=seed)", "['recipe'], seed=0)"),
        ('lr=1e-4,', 'lr=1e-3,'),
        ('return model.eval()', 'return model'),
        ("startswith('discriminator')", "startswith('discriminator_u')"),
        ('if discriminators or player_of', 'if player_of'),
        ('images.split(self.batch_size)', 'images[:self.batch_size].split(self.batch_size)'),
    ],
    'vae': [
        ("self.beta * terms['kl'] + terms['reconstruction']", "terms['kl'] + self.beta * terms['reconstruction']"),
        ('self.generator(q.sample())', 'self.generator(q.mean)'),
        ('q.kl().mean()', 'q.kl().sum()'),
        ("self.posteriors(x_u)['z']", "self.posteriors(x_u if x_r is None else x_r)['z']"),
        ('super().__init__(beta=beta, **kwargs)', 'super().__init__(**kwargs)'),
    ],
    'rbvae': [
        ('self.e_ref.expand(n, -1)', 'self.e_ref.detach().expand(n, -1)'),
        ('self.e_ref.expand(n, -1)', 'Posterior(*self.encoder_e(x[n:])).sample()'),
        ("'kl_e_u': e.kl()", "'kl_e_u': Posterior(*self.encoder_e(x[n:])).kl()"),  # the other stream
        ("'kl_z_r': kl_z_r.mean()", "'kl_z_r': kl_z_u.mean()"),
        ('[e.sample(), self.e_ref', '[e.mean, self.e_ref'),
        ('x_hat_u, x_hat_r = self', 'x_hat_r, x_hat_u = self'),
        ('sum(terms.values())', "sum(terms.values()) - terms['kl_z_r']"),
        ('e=self.e_ref.detach().cpu().expand', 'e=torch.zeros(self.dim_e).expand'),
        ("self.encode(e_from)['e'], self.encode(z_from)['z']", "self.encode(z_from)['e'], self.encode(e_from)['z']"),
    ],
    'srbvae': [
        # samples of q and p
        (' e[:n],', ' e[n:],'),
        ('drawn(q.z_u, q.z_r), drawn(q.z_r, q.z_u)', 'drawn(q.z_u, q.z_u), drawn(q.z_r, q.z_r)'),  # not crossed
        ('drawn(q.e_u, q.e_u).detach()', 'drawn(q.e_u, q.e_u)'),
        ('(z_u.detach(), e_u, z_r.detach())', '(z_u, e_u, z_r)'),
        ('e_u, x_r, z_r.detach()), (z_u, z_r)', 'e_u, x_r, z_r.detach()), (z_u.detach(), z_r.detach())'),
        ('self.e_ref.expand(len(z_r), -1)', 'self.e_ref.detach().expand(len(z_r), -1)'),
        ('int(len(drawn) * share)', 'int(len(drawn) * (1 - share))'),
        ('torch.randperm(', 'torch.arange('),
        ('torch.distributions.Laplace(x, self.noise', 'torch.distributions.Normal(x, self.noise'),
        # terms
        ("'adversarial_r': j_r", "'adversarial_r': -j_r"),
        ("'discriminator': loss_u + loss_r", "'discriminator': loss_u"),
        ("posteriors['z'].kl().mean() * 2", "posteriors['z'].kl().mean()"),
        ("posteriors['e'].kl()[:n]", "posteriors['e'].kl()[n:]"),  # the reference stream
        ("(t[n:] for t in posteriors['e'])", "(t[:n] for t in posteriors['e'])"),  # the anchor on unlabelled images
        ('-at_reference.log_density(self.e_ref.expand', '-at_reference.log_density(self.e_ref.detach().expand'),
        ('-at_reference.log_density', 'at_reference.log_density'),
        ('x_hat[1], scale', 'x_hat[1], self.laplace_scale'),
        ('share * (x - x', '(1 - share) * (x - x'),
        ('self.encoder_e(x_u)).log_density(p.e_u)', 'self.encoder_e(x_u)).log_density(q.e_u)'),  # the wrong e
        ('.log_density(torch.cat(z)))', '.log_density(torch.cat(z[::-1])))'),
        ('batch_entropy(q.z_u) + batch_entropy(q.z_r)', 'batch_entropy(q.z_u) + batch_entropy(q.z_u)'),
        # weights and schedules
        ('(self.pretraining_scale or self.laplace_scale) ** (1 - t) * self.laplace_scale ** t',
         '(self.pretraining_scale or self.laplace_scale) ** t * self.laplace_scale ** (1 - t)'),  # backwards
        ('kl=1 - t + t * self.kl_weight', 'kl=1 - t * self.kl_weight'),
        ('t * self.latent_z_weight, t * self.latent_e_weight', 't * self.latent_e_weight, t * self.latent_z_weight'),
        ('t * self.adversarial_weight', 'self.adversarial_weight'),
        ('entropy=-z *', 'entropy=z *'),
        ('self.aggregate * self.entropy_weight', 'self.entropy_weight'),
        ('anchor=self.anchor_weight', 'anchor=t * self.anchor_weight'),
        ('(elapsed - self.pretraining) / self.ramp', 'elapsed / self.ramp'),
        ('float(elapsed >= self.pretraining)', 'float(elapsed < self.pretraining)'),
        # one backward pass for both players
        ('[-pushes[0] / len(d_q)', '[pushes[0] / len(d_q)'),
        ('[-g / push.view', '[-g * push.view'),
        ('symmetric_kl(d_q, d_p), logistic_loss(d_q, d_p)', 'symmetric_kl(d_q, d_p), logistic_loss(d_p, d_q)'),
        ("'e': q._replace(e_u=q.e_u.roll(1, 0))", "'e': q._replace(e_u=q.e_u.roll(1, 1))"),
        ('model.train(was_training)', 'model.train()'),
        ('return min(1., max(0., (', 'return min(1., abs(('),
    ],
    'baselines': [
        ('F.softplus(-fake)', 'F.softplus(fake)'),
        ('self.beta, 10 * self.beta)', 'self.beta, self.beta)'),  # DIP-VAE-I with the λ_d of II
        ('(self.beta - 1) * total_correlation', 'self.beta * total_correlation'),
        ("self.posteriors(x_hat)['z'].log_density(z_hat)", "self.posteriors(x_hat)['z'].log_density(z)"),
        ("self.posteriors(x_hat)['z'].log_density(z_hat)", "self.posteriors(x_rec)['z'].log_density(z_hat)"),
        ("'adversarial': j,", "'adversarial': -j,"),
        ("self.beta * terms['adversarial'] + terms['reconstruction']",
         "terms['adversarial'] + self.beta * terms['reconstruction']"),  # β on the wrong term
        ('(x_u, z), (x_hat, z_hat)', '(x_hat, z_hat), (x_u, z)'),
        ('/ len(codes)', '/ (len(codes) - 1)'),
        ('cov.square().sum() - on.square().sum()', 'cov.square().sum()'),
        ('(on - 1).square()', 'on.square()'),
        ('q.logvar.exp().mean(0).diag()', '(q.logvar / 2).exp().mean(0).diag()'),
        ('covariance(q.mean) + q.logvar', 'covariance(z) + q.logvar'),
        ('(z[:, None] - q.mean)', '(z - q.mean[:, None])'),  # the axes exchanged
        ('(joint - product)', '(product - joint)'),
        ('(z.shape[1] - 1) * math.log', 'z.shape[1] * math.log'),
        # Mathieu et al.
        ('e[n:].roll(1, 0)', 'e[n:]'),  # nothing exchanged
        ('2 * q.kl().mean()', 'q.kl().mean()'),
        ('(self.adversarial_weight - 1) *', 'self.adversarial_weight *'),
        ('>= n).float()', '< n).float()'),  # the sets exchanged
        ('torch.randn_like(part), z, .5)', 'torch.randn_like(part), part, .5)'),
        ('self.encoder_e(x)[0]', 'Posterior(*self.encoder_e(x)).sample()'),
        ('(self.e_std, e_u.std(0))', '(self.e_std, e_u.var(0))'),
        ('(self.e_mean, e_u.mean(0))', '(self.e_mean, e_r.mean(0))'),
        ('value.float(), share)', 'value.float(), 1 - share)'),
        ('if self.training: self.follow', 'if not self.training: self.follow'),
        ("self.e_mean.cpu() + codes['e']", "self.e_ref.cpu() + codes['e']"),
    ],
    'training': [
        ('reversed(model.players().items())', 'list(model.players().items())'),  # the model first
        ('(steps - self.step) / (decay * steps)', '1'),
        ('(steps - self.step) / (decay * steps)', 'self.step / (decay * steps)'),
        ('(self.step + 1) / (warmup * steps)', '(self.step + 1) / warmup'),
        ('p, g in zip(players[who], grads): p.grad = g',
         'p, g in zip(players[who], grads): p.grad = g if p.grad is None else p.grad + g'),  # gradients accumulate
        ("alternating_step if self.recipe['alternating'] else gradient_step", 'alternating_step'),
        ('ratio.get(who, 1)', "ratio.get('model', 1)"),
        ("recipe['lr'] * ratio", "recipe['lr'] / ratio"),
        ("tuple(recipe['betas'])", "tuple(recipe['betas'][::-1])"),
        ('self.rates[who] * self.rate()', 'self.rates[who]'),
        ("self.step / self.recipe['steps']", "(self.step + 1) / self.recipe['steps']"),
        ('half = self.dtype != torch.float32', 'half = False'),
        ("torch.Generator().manual_seed(recipe['seed'])", 'torch.Generator().manual_seed(0)'),
        ("run.draw.set_state(tensors['random.batches'])", 'run.draw.set_state(run.draw.get_state())'),
        ("torch.set_rng_state(tensors['random.cpu'])", 'torch.set_rng_state(torch.get_rng_state())'),
        ("History(about['history'])", 'History()'),
        ('_restore_optimizer(optimizer, tensors, f', '_restore_optimizer(optimizer, {}, f'),
        ('show_rows(run.model.pictures', 'show_rows(run.model.train().pictures'),  # with dropout
        ('step % self.every == 0', 'step % self.every == 1'),
        ('isfinite().all()) and all(weights)', 'isfinite().all()) or all(weights)'),
        ("- (run.history[-1]['seconds']", "+ (run.history[-1]['seconds']"),
        ('run.step % log_every == 0', 'run.step % log_every == 1'),
    ],
    'probing': [
        ('split.rows(first), test_codes, split.rows(second)', 'split.rows(first), fit_codes, split.rows(first)'),
        ('test_codes[code], nonlinear) == test.labels', 'test_codes[code]) == test.labels'),
        ('fit.factors[name], test_code, nonlinear)', 'fit.factors[name], test_code)'),
        ('regress(fit_code, values, test_code, nonlinear)', 'regress(fit_code, values, test_code)'),
        ('encode_split(model, test), test, nonlinear)', 'encode_split(model, test), test)'),
        ('np.median(values, keepdims=True)', 'values.mean(keepdims=True)'),
        ('np.median(values, keepdims=True)', 'np.median([*fit.factors.values()][0], keepdims=True)'),
        ('classes[[counts.argmax()]]', 'classes[[counts.argmin()]]'),
        ('factors, label = chance_guess(fit)', 'factors, label = chance_guess(test)'),
        ("knows(e, 'target') + knows(z, 'identity')", "knows(z, 'target') + knows(e, 'identity')"),
        ('(value - chance) / (best - chance), 0, 1)', '(value - chance) / (best - chance), -1, 1)'),
        ('(value - chance) / (best - chance)', '(value - chance) / best'),
        ('explained(code, one_hot(split.labels)) - explained(code, factor_columns(split))',
         'explained(code, factor_columns(split)) - explained(code, one_hot(split.labels))'),  # the order
        ('max(cuts, key=score)', 'min(cuts, key=score)'),
        ('[2.5, 97.5]', '[5, 95]'),
        ('table[rng.integers(0, m, m)]', 'table[rng.permutation(m)]'),  # without replacement
        ('(high - low) / 2', 'high - low'),
        ('left.var(0) /', 'left.std(0) /'),
        ('make_pipeline(StandardScaler(), MultiOutputRegressor(SVR(epsilon=.02)))',
         'MultiOutputRegressor(SVR(epsilon=.02))'),
        ('make_pipeline(StandardScaler(), classifier)', "make_pipeline('passthrough', classifier)"),
        ('np.abs(found[name] - values)', '(found[name] - values) ** 2'),
        ('.fit(fit, fit_labels).predict(test)', '.fit(test, fit_labels[:len(test)]).predict(test)'),
        ('*errors.values()]).mean(1)', '*errors.values()]).sum(1)'),
        ('SVR(epsilon=.02)', 'SVR(epsilon=.2)'),
        ('cv=min(5, counts.min())', 'cv=2'),
        ('[.01, .03, .1, .3, 1]', '[1]'),
        ('np.linspace(1, dims - 1, 10)', 'np.linspace(1, dims - 1, 3)'),
    ],
    'attributes': [
        ("codes['z'][e_from], codes['z'])", "codes['z'], codes['z'][e_from])"),  # the wrong dimensions
        ("{'e': codes['e'][e_from]}", "{'z': codes['z'][e_from]}"),
        ('factor_errors(split.factors, split.rows(partners(split.labels)).factors)',
         'factor_errors(classifier.measure(split.images)[1], split.factors)'),  # the wrong floor
        ('drawn, split.labels, giver.factors)', 'drawn, split.labels, split.factors)'),
        ('drawn, split.labels, giver.factors)', 'drawn, giver.labels, giver.factors)'),
        ('(classifier.measure(drawn)[0] == giver.labels)', '(classifier.measure(drawn)[0] == split.labels)'),
        ('model.reconstruct(split.images), split.labels', 'split.images, split.labels'),
        ('out[[i, j]] = out[[j, i]]', 'out[i] = out[j]'),
        ('rng = np.random.default_rng(seed)', 'rng = np.random.default_rng(0)'),
        ('out.argmax(1)', 'out.argmin(1)'),
        ('loss + 10 * torch', 'loss + torch'),
        ('.abs().mean() if errors', '.square().mean() if errors'),
        ('torch.stack(errors, 1).abs().mean()', 'torch.stack(errors, 1).abs().sum(1).mean()'),
        ('else: loss = loss + F', 'else: loss = F'),
        ('F.adaptive_avg_pool2d(x, self.image_size)', 'x[..., :self.image_size, :self.image_size]'),
        ('to_float(b) if b.dtype', 'b.float() if b.dtype'),
        ('labels[i].to(place)', 'labels[i.flip(0)].to(place)'),
        ('OneCycleLR(optimizer, lr, steps)', 'OneCycleLR(optimizer, lr, 10 * steps)'),
    ],
    'networks': [
        ('>= p).to(g.dtype)', '>= p).to(g.dtype) / (1 - p)'),  # rescaled
        ('>= p).to(g.dtype)', '< p).to(g.dtype)'),
        ('torch.rand(len(g), 1, device', 'torch.rand(1, 1, device'),  # for the whole batch at once
        ('torch.rand(len(g), 1, device', 'torch.rand(len(g), g.shape[1], device'),
        ('group_dropout(groups, self.dropout)', 'groups[:1] + group_dropout(groups[1:], self.dropout)'),
        ('if self.training: groups', 'if not self.training: groups'),
        ('.chunk(2, 1)', '.chunk(2, 1)[::-1]'),
        ('logvar.clamp(-10, 4)', 'logvar.clamp(-10, 0)'),
        ('last.weight[:dim].mul_(5)', 'last.weight[dim:].mul_(5)'),
        ('last.bias[dim:].fill_(-3)', 'last.bias[dim:].fill_(3)'),
        ('to_rgb.weight.mul_(.3)', 'to_rgb.weight.mul_(3)'),
        ('[PixelNorm()] * latent_norm', '[PixelNorm()] * (not latent_norm)'),
        ('head[-1]).weight.mul_(.1)', 'head[-1]).weight.mul_(10)'),
        ('return F.avg_pool2d(F.leaky_relu(h, .2), 2)', 'return F.leaky_relu(F.avg_pool2d(h, 2), .2)'),
        ('F.interpolate(g / 4,', 'F.interpolate(g,'),
        ('[before, here + after]', '[before + here, after]'),
        ('inner, y, value=-1', 'inner, y, value=1'),
        ('kaiming_normal_(module.weight, .2)', 'kaiming_normal_(module.weight, 1.)'),
        ('nn.LeakyReLU(.2), PixelNorm()]', 'PixelNorm(), nn.LeakyReLU(.2)]'),
        ('layers += [nn.AvgPool2d(2), stage', 'layers += [nn.MaxPool2d(2), stage'),
        ('self.dropout, act = dropout, nn.LeakyReLU(.2)', 'self.dropout, act = dropout, nn.Identity()'),
    ],
}
# Module and mistake: why no test of WATCH fails. Each is expected to go unnoticed.
UNNOTICED: dict[tuple[str, str], str] = {
    ('training', 'isfinite().all()) or all(weights)'): 'a loss that is not finite leaves no weight finite',
    ('probing', 'cv=2'): 'the classes that are planted are as clear with two folds as with five',
    ('probing', '[1]'): 'the codes that are planted have few dimensions, and need no strong penalty',
    ('attributes', 'OneCycleLR(optimizer, lr, 10 * steps)'): 'patches are learned at a rate that never falls, too',
    ('networks', 'PixelNorm(), nn.LeakyReLU(.2)]'): 'the order of two layers; trained weights do with either',
}
