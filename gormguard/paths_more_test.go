package gormguard_test

import (
	"database/sql"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

func (c *cell) owner() *Owner { return &Owner{ID: 1, SKU: c.sku, Name: "owner"} }

var associationPaths = []path{
	{name: "autosave has many", run: fn(func(c *cell) *gorm.DB { o := c.owner(); o.Items = []Item{{ID: 3, SKU: c.sku}}; return c.tx.Updates(o) })},
	{name: "autosave has one", run: fn(func(c *cell) *gorm.DB { o := c.owner(); o.Badge = &Badge{ID: 2, Text: "x"}; return c.tx.Updates(o) })},
	{name: "autosave belongs to", run: fn(func(c *cell) *gorm.DB { o := c.owner(); o.Boss = &Boss{ID: 2, Name: "x"}; return c.tx.Updates(o) })},
	{name: "FullSaveAssociations", run: fn(func(c *cell) *gorm.DB {
		o := c.owner()
		o.Items, o.Boss, o.Badge = []Item{{ID: 1, SKU: c.sku, Note: "x"}}, &Boss{ID: 1, Name: "x"}, &Badge{ID: 1, Text: "x"}
		return c.tx.Session(&gorm.Session{FullSaveAssociations: true}).Updates(o)
	})},
	{name: "Create with children", blind: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Create(&Owner{ID: 10, SKU: c.sku, Items: []Item{{ID: 10, SKU: c.sku}}, Boss: &Boss{ID: 10}, Badge: &Badge{ID: 10}})
	})},
	{name: "Append", run: func(c *cell) error { return c.tx.Model(c.owner()).Association("Items").Append(c.item(3)) }},
	{name: "Replace", run: func(c *cell) error { return c.tx.Model(c.owner()).Association("Items").Replace(c.item(3)) }},
	{name: "Association Delete", run: func(c *cell) error { return c.tx.Model(c.owner()).Association("Items").Delete(c.item(1)) }},
	{name: "Association Clear", run: func(c *cell) error { return c.tx.Model(c.owner()).Association("Items").Clear() }},
	{name: "Association Unscoped Clear", run: func(c *cell) error { return c.tx.Model(c.owner()).Association("Items").Unscoped().Clear() }},
	{name: "belongs to Replace", run: func(c *cell) error { return c.tx.Model(c.owner()).Association("Boss").Replace(&Boss{ID: 2}) }},
	{name: "has one Replace", run: func(c *cell) error { return c.tx.Model(c.owner()).Association("Badge").Replace(&Badge{ID: 2}) }},
	{name: "many2many Append", blind: true, run: func(c *cell) error { return c.tx.Model(c.item(1)).Association("Tags").Append(&Tag{ID: 2}) }},
	{name: "many2many Replace", tears: true, run: func(c *cell) error { return c.tx.Model(c.item(1)).Association("Tags").Replace(&Tag{ID: 2}) }},
	{name: "many2many Replace in Transaction", run: func(c *cell) error {
		return c.tx.Transaction(func(tx *gorm.DB) error { return tx.Model(c.item(1)).Association("Tags").Replace(&Tag{ID: 2}) })
	}},
	{name: "many2many Delete", any: true, run: func(c *cell) error { return c.tx.Model(c.item(1)).Association("Tags").Delete(&Tag{ID: 1}) }},
	{name: "many2many Clear", any: true, run: func(c *cell) error { return c.tx.Model(c.item(1)).Association("Tags").Clear() }},
}

const rawUpdate = "UPDATE items SET note = 'x' WHERE id = 1"

var rawPaths = []path{
	{name: "Exec", raw: true, any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Exec("UPDATE items SET note = ? WHERE id = ?", "x", 1) })},
	{name: "Exec named", raw: true, any: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Exec("UPDATE items SET note = @n WHERE id = 1", sql.Named("n", "x"))
	})},
	{name: "Exec quoted", raw: true, any: true, only: "postgres", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Exec(`UPDATE ONLY "public"."items" AS i SET note = 'x' WHERE i.id = 1`)
	})},
	{name: "Exec backticks", raw: true, any: true, only: "mysql", run: fn(func(c *cell) *gorm.DB { return c.tx.Exec("/*!UPDATE `items` */ SET note = 'x' WHERE id = 1") })},
	{name: "Exec string as a name", raw: true, any: true, only: "sqlite", run: fn(func(c *cell) *gorm.DB { return c.tx.Exec(`update 'items' set note = 'x' where id = 1`) })},
	{name: "Exec WITH", raw: true, any: true, only: "postgres", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Exec("WITH u AS (UPDATE items SET note = 'x' WHERE id = 1 RETURNING id) SELECT count(*) FROM u")
	})},
	{name: "Exec DO", raw: true, any: true, only: "postgres", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Exec("DO $$ BEGIN UPDATE items SET note = 'x' WHERE id = 1; END $$")
	})},
	{name: "Exec MERGE-like", raw: true, any: true, only: "sqlite", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Exec("REPLACE INTO items (id, sku, stock, note, fence_token) VALUES (1, 's', 1, 'x', 0)")
	})},
	{name: "Exec TRUNCATE", raw: true, any: true, only: "postgres", run: fn(func(c *cell) *gorm.DB { return c.tx.Exec("TRUNCATE items") })},
	{name: "Exec multi-table", raw: true, any: true, only: "mysql", run: fn(func(c *cell) *gorm.DB { return c.tx.Exec("UPDATE tags t JOIN items i ON i.id = t.id SET i.note = 'x'") })},
	{name: "Exec multi-table delete", raw: true, any: true, only: "mysql", run: fn(func(c *cell) *gorm.DB { return c.tx.Exec("DELETE i FROM tags t JOIN items i ON i.id = t.id") })},
	{name: "Raw Scan", raw: true, any: true, only: "postgres", run: fn(func(c *cell) *gorm.DB { var id int; return c.tx.Raw(rawUpdate + " RETURNING id").Scan(&id) })},
	{name: "Raw Scan sqlite", raw: true, any: true, only: "sqlite", run: fn(func(c *cell) *gorm.DB { var id int; return c.tx.Raw(rawUpdate + " RETURNING id").Scan(&id) })},
	{name: "Raw Row", raw: true, any: true, only: "postgres", run: func(c *cell) error { var id int; return c.tx.Raw(rawUpdate + " RETURNING id").Row().Scan(&id) }},
	{name: "Raw Row sqlite", raw: true, any: true, only: "sqlite", run: func(c *cell) error { var id int; return c.tx.Raw(rawUpdate + " RETURNING id").Row().Scan(&id) }},
	{name: "Raw Rows", raw: true, any: true, only: "postgres", run: rawRows},
	{name: "Raw Rows sqlite", raw: true, any: true, only: "sqlite", run: rawRows},
	{name: "Raw Find", raw: true, any: true, only: "postgres", run: fn(func(c *cell) *gorm.DB { var i []Item; return c.tx.Raw(rawUpdate + " RETURNING *").Find(&i) })},
	{name: "Raw First", raw: true, any: true, only: "sqlite", run: fn(func(c *cell) *gorm.DB { var i Item; return c.tx.Raw(rawUpdate + " RETURNING *").First(&i) })},
	{name: "Raw Updates", raw: true, any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Raw(rawUpdate).Where("id = 1").Updates(c.item(1)) })},
	{name: "Raw Create", raw: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Raw(rawUpdate).Create(c.item(1)) })},
	{name: "Raw Delete", raw: true, any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Raw(rawUpdate).Where("id = 1").Delete(c.item(1)) })},
	{name: "ConnPool", direct: true, raw: true, any: true, run: func(c *cell) error { _, err := c.tx.Statement.ConnPool.ExecContext(c.ctx, rawUpdate); return err }},
	{name: "ConnPool Query", direct: true, raw: true, any: true, only: "sqlite", run: func(c *cell) error {
		rows, err := c.tx.Statement.ConnPool.QueryContext(c.ctx, rawUpdate+" RETURNING id")
		if err != nil {
			return err
		}
		return rows.Close()
	}},
	{name: "Migrator RenameColumn", raw: true, any: true, only: "sqlite", run: func(c *cell) error {
		if err := c.tx.Migrator().RenameColumn("nameds", "value", "val"); err != nil {
			return err
		}
		c.Cleanup(func() { _ = c.bare.Migrator().RenameColumn("nameds", "val", "value") })
		return nil
	}},
}

func rawRows(c *cell) error {
	rows, err := c.tx.Raw(rawUpdate + " RETURNING id").Rows()
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

var tablePaths = []path{
	{name: "Table Updates", any: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Table("items").Where("id = ?", 1).Updates(map[string]any{"note": "x"})
	})},
	{name: "Table upper case", any: true, only: "sqlite", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Table("ITEMS").Where("id = ?", 1).Updates(map[string]any{"note": "x"})
	})},
	{name: "Table schema", any: true, only: "postgres", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Table("public.items").Where("id = ?", 1).Updates(map[string]any{"note": "x"})
	})},
	{name: "Table alias", any: true, only: "postgres", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Table("items AS i").Where("i.id = ?", 1).Updates(map[string]any{"note": "x"})
	})},
	{name: "Table ONLY", any: true, only: "postgres", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Table("ONLY items").Where("id = ?", 1).Updates(map[string]any{"note": "x"})
	})},
	{name: "Table Create", any: true, blind: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Table("items").Create(map[string]any{"id": 10, "sku": c.sku, "stock": 1, "note": "", "fence_token": 3})
	})},
	{name: "Table Delete", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Table("items").Where("id = ?", 1).Delete(nil) })},
	{name: "shadow struct", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Shadow{ID: 1}).Update("note", "x") })},
	{name: "shadow Save", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Shadow{ID: 1}).Save(&Shadow{ID: 1, Note: "x"}) })},
	{name: "other model", any: true, run: fn(func(c *cell) *gorm.DB { return c.tx.Model(&Tag{ID: 1}).Table("items").Update("note", "x") })},
	{name: "clause Update", any: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Model(&Tag{}).Where("id = 1").Clauses(clause.Update{Table: clause.Table{Name: "bosses"}}).Update("name", "x")
	})},
	{name: "clause Insert", any: true, blind: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.Insert{Table: clause.Table{Name: "bosses"}}).Create(&Tag{ID: 10, Name: "x"})
	})},
	{name: "clause From", any: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Clauses(clause.From{Tables: []clause.Table{{Name: "bosses"}}}).Where("id = 1").Delete(&Tag{})
	})},
}

var transactionPaths = []path{
	{name: "Transaction", run: func(c *cell) error {
		return c.tx.Transaction(func(tx *gorm.DB) error { return tx.Model(c.item(1)).Update("note", "x").Error })
	}},
	{name: "Transaction raw", raw: true, any: true, run: func(c *cell) error {
		return c.tx.Transaction(func(tx *gorm.DB) error { return tx.Exec(rawUpdate).Error })
	}},
	{name: "nested Transaction", run: func(c *cell) error {
		return c.tx.Transaction(func(tx *gorm.DB) error {
			return tx.Transaction(func(tx *gorm.DB) error { return tx.Model(c.item(1)).Update("note", "x").Error })
		})
	}},
	{name: "after a nested rollback", run: func(c *cell) error {
		return c.tx.Transaction(func(tx *gorm.DB) error {
			_ = tx.Transaction(func(tx *gorm.DB) error {
				_ = tx.Model(c.item(1)).Update("note", "lost").Error
				return errAbort
			})
			return tx.Model(c.item(2)).Update("note", "x").Error
		})
	}},
	{name: "DisableNestedTransaction", run: func(c *cell) error {
		return c.tx.Session(&gorm.Session{DisableNestedTransaction: true}).Transaction(func(tx *gorm.DB) error {
			return tx.Transaction(func(tx *gorm.DB) error { return tx.Model(c.item(1)).Update("note", "x").Error })
		})
	}},
	{name: "Begin Commit", run: func(c *cell) error {
		tx := c.tx.Begin()
		if err := tx.Model(c.item(1)).Update("note", "x").Error; err != nil {
			tx.Rollback()
			return err
		}
		return tx.Commit().Error
	}},
	{name: "SavePoint RollbackTo", run: func(c *cell) error {
		tx := c.tx.Begin()
		defer tx.Rollback()
		tx.SavePoint("here")
		_ = tx.Model(c.item(1)).Update("note", "lost").Error
		tx.RollbackTo("here")
		if err := tx.Model(c.item(2)).Update("note", "x").Error; err != nil {
			return err
		}
		return tx.Commit().Error
	}},
	{name: "swallowed error", run: func(c *cell) (refused error) {
		err := c.tx.Transaction(func(tx *gorm.DB) error {
			refused = tx.Model(c.item(1)).Update("note", "x").Error
			return nil
		})
		if refused != nil {
			return refused
		}
		return err
	}},
	{name: "Connection", run: func(c *cell) error {
		return c.tx.Connection(func(tx *gorm.DB) error { return tx.Model(c.item(1)).Update("note", "x").Error })
	}},
	{name: "Connection Transaction", run: func(c *cell) error {
		return c.tx.Connection(func(tx *gorm.DB) error {
			return tx.Transaction(func(tx *gorm.DB) error { return tx.Model(c.item(1)).Update("note", "x").Error })
		})
	}},
	{name: "Connection Exec", raw: true, any: true, run: func(c *cell) error {
		return c.tx.Connection(func(tx *gorm.DB) error { return tx.Exec(rawUpdate).Error })
	}},
}

func prepared(c *cell) *gorm.DB { return c.tx.Session(&gorm.Session{PrepareStmt: true}) }

var sessionPaths = []path{
	{name: "SkipDefaultTransaction", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Session(&gorm.Session{SkipDefaultTransaction: true}).Model(c.item(1)).Update("note", "x")
	})},
	{name: "SkipDefaultTransaction batch", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Session(&gorm.Session{SkipDefaultTransaction: true}).Model(&Item{}).Where("stock < 3").Delete(&Item{})
	})},
	{name: "PrepareStmt", run: fn(func(c *cell) *gorm.DB { return prepared(c).Model(c.item(1)).Update("note", "x") })},
	{name: "PrepareStmt again", run: fn(func(c *cell) *gorm.DB { return prepared(c).Model(c.item(1)).Update("note", "x") })},
	{name: "PrepareStmt Exec", raw: true, any: true, run: fn(func(c *cell) *gorm.DB { return prepared(c).Exec(rawUpdate) })},
	{name: "PrepareStmt Transaction", run: func(c *cell) error {
		return prepared(c).Transaction(func(tx *gorm.DB) error {
			return tx.Transaction(func(tx *gorm.DB) error { return tx.Model(c.item(1)).Update("note", "x").Error })
		})
	}},
	{name: "PrepareStmt SkipDefaultTransaction", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Session(&gorm.Session{PrepareStmt: true, SkipDefaultTransaction: true}).Model(c.item(1)).Update("note", "x")
	})},
	{name: "NewDB", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Session(&gorm.Session{NewDB: true}).Model(c.item(1)).Update("note", "x")
	})},
	{name: "Debug Scopes", run: fn(func(c *cell) *gorm.DB {
		return c.tx.Scopes(func(tx *gorm.DB) *gorm.DB { return tx.Where("id = 1") }).Model(&Item{}).Update("note", "x")
	})},
	{name: "DryRun", dry: true, run: fn(func(c *cell) *gorm.DB {
		return c.tx.Session(&gorm.Session{DryRun: true}).Model(c.item(1)).Update("note", "x")
	})},
	{name: "ToSQL", dry: true, run: func(c *cell) error {
		c.tx.ToSQL(func(tx *gorm.DB) *gorm.DB { return tx.Model(c.item(1)).Update("note", "x") })
		return nil
	}},
}

// The operation is made anew for each run: runs are concurrent, and GORM fills in the values that it creates.
func gAssociation[T any](op func() clause.Association) func(*cell) error {
	return func(c *cell) error {
		_, err := gorm.G[T](c.db).Where("id = ?", 1).Set(op()).Update(c.ctx)
		return err
	}
}

func unlinked(name string) func() clause.Association {
	return func() clause.Association { return clause.Association{Association: name, Type: clause.OpUnlink} }
}

func deletedBadge() clause.Association {
	return clause.Association{Association: "Badge", Type: clause.OpDelete}
}

func updatedBadge() clause.Association {
	return clause.Association{Association: "Badge", Type: clause.OpUpdate, Set: []clause.Assignment{{Column: clause.Column{Name: "text"}, Value: "x"}}}
}

func createdBadge() clause.Association {
	return clause.Association{Association: "Badge", Type: clause.OpCreate, Values: []any{&Badge{ID: 10, Text: "x"}}}
}

func gRaw(c *cell) error {
	_, err := gorm.G[Item](c.db).Raw(rawUpdate + " RETURNING *").Find(c.ctx)
	return err
}

var genericPaths = []path{
	{name: "G Update", run: func(c *cell) error {
		_, err := gorm.G[Item](c.db).Where("id = ?", 1).Update(c.ctx, "note", "x")
		return err
	}},
	{name: "G Updates", run: func(c *cell) error {
		_, err := gorm.G[Item](c.db).Where("id = ?", 1).Updates(c.ctx, Item{Note: "x"})
		return err
	}},
	{name: "G Delete", run: func(c *cell) error { _, err := gorm.G[Item](c.db).Where("id = ?", 1).Delete(c.ctx); return err }},
	{name: "G Table", any: true, run: func(c *cell) error {
		_, err := gorm.G[Shadow](c.db).Table("items").Where("id = ?", 1).Update(c.ctx, "note", "x")
		return err
	}},
	{name: "G CreateInBatches", blind: true, run: func(c *cell) error {
		return gorm.G[Item](c.db).CreateInBatches(c.ctx, &[]Item{{ID: 10, SKU: c.sku}, {ID: 11, SKU: c.sku}, {ID: 12, SKU: c.sku}}, 2)
	}},
	{name: "G OnConflict", run: func(c *cell) error {
		return gorm.G[Item](c.db, clause.OnConflict{UpdateAll: true}).Create(c.ctx, &Item{ID: 1, SKU: c.sku, Note: "x"})
	}},
	{name: "G unlink", run: gAssociation[Owner](unlinked("Items"))},
	{name: "G delete association", any: true, run: gAssociation[Owner](deletedBadge)},
	{name: "G update association", any: true, run: gAssociation[Owner](updatedBadge)},
	{name: "G create association", tears: true, run: gAssociation[Owner](createdBadge)},
	{name: "G unlink join rows", any: true, run: gAssociation[Item](unlinked("Tags"))},
	{name: "G Raw", raw: true, any: true, only: "postgres", run: gRaw},
	{name: "G Raw sqlite", raw: true, any: true, only: "sqlite", run: gRaw},
	{name: "G Create", blind: true, run: func(c *cell) error { return gorm.G[Item](c.db).Create(c.ctx, &Item{ID: 10, SKU: c.sku}) }},
	{name: "G Set Update", run: func(c *cell) error {
		_, err := gorm.G[Item](c.db).Where("id = ?", 1).Set(clause.Assignment{Column: clause.Column{Name: "note"}, Value: "x"}).Update(c.ctx)
		return err
	}},
	{name: "G Exec", raw: true, any: true, run: func(c *cell) error { return gorm.G[Item](c.db).Exec(c.ctx, rawUpdate) }},
}
